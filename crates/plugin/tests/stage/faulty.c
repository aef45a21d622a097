/* A plug-in with one fault, which -DFAULT_... chooses; without one it counts the steps of each lane. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#include <stdlib.h>
#include <string.h>

#include "rollhouse.h"

struct rollhouse_block {
    int64_t steps[ROLLHOUSE_BLOCK_LANES];
    uint64_t drawn[ROLLHOUSE_BLOCK_LANES];
};

static const double zero[2] = {0, 0}, most[2] = {1e9, 1e9};
static const uint64_t shape[1] = {2};
static const uint64_t huge[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40};

#if defined FAULT_SPACES_WITHOUT_PARTS
#define PARTS 3
#else
#define PARTS 2
#endif
#if defined FAULT_DTYPE
#define DTYPE 77
#else
#define DTYPE ROLLHOUSE_F64
#endif
#if defined FAULT_BOUNDS
#define BOUNDS 1000000
#else
#define BOUNDS 2
#endif

static const rollhouse_space observation[3] = {
    {.kind = ROLLHOUSE_TUPLE, .parts = PARTS},
    {.kind = ROLLHOUSE_BOX, .dtype = DTYPE, .axes = 1, .shape = shape, .low = zero, .high = most, .bounds = BOUNDS},
    {.kind = ROLLHOUSE_DISCRETE, .n = 5, .start = 1},
};
static const rollhouse_space action = {.kind = ROLLHOUSE_DISCRETE, .n = 2};
static const char *const names[2] = {"stay", "go"};
static char endless[8192];

static const rollhouse_description *describe(uint32_t env) {
    static rollhouse_description d;
    (void)env;
    d.size = sizeof d;
    d.deterministic = 1;
    d.id = "c/Counter-v0";
    d.summary = "count steps";
    d.observation = observation;
    d.observation_count = 3;
    d.action = &action;
    d.action_names = names;
    d.action_name_count = 2;
    d.max_episode_steps = 50;
    memset(endless, 'a', sizeof endless);
#if defined FAULT_NO_DESCRIPTION
    return NULL;
#elif defined FAULT_DESCRIPTION_SIZE
    d.size = 13;
#elif defined FAULT_NO_ID
    d.id = NULL;
#elif defined FAULT_ENDLESS_ID
    d.id = endless;
#elif defined FAULT_ID_IN_LATIN_1
    d.id = "Stra\xdf" "e-v0";
#elif defined FAULT_ID_WITH_ESCAPES
    d.id = "\x1b[2J";
#elif defined FAULT_ID_WITH_A_COLON
    d.id = "my_envs:Maze";
#elif defined FAULT_OBSERVATION_COUNT
    d.observation_count = 4000000000u;
#elif defined FAULT_NO_OBSERVATION
    d.observation_count = 0;
#elif defined FAULT_NULL_OBSERVATION
    d.observation = NULL;
#elif defined FAULT_NAME_COUNT
    d.action_name_count = 60000;
#elif defined FAULT_NULL_NAME
    static const char *const none[2] = {"stay", NULL};
    d.action_names = none;
#elif defined FAULT_ACTION_WITH_PARTS
    d.action = observation;
#elif defined FAULT_SEQUENCE_WITHOUT_ITEM
    static const rollhouse_space alone = {.kind = ROLLHOUSE_SEQUENCE, .n = 3};
    d.observation = &alone;
    d.observation_count = 1;
#elif defined FAULT_CHARACTER_TWICE
    static const uint64_t codes[2] = {97, 97};
    static const rollhouse_space word = {.kind = ROLLHOUSE_STRING, .axes = 2, .shape = codes, .n = 3};
    d.action = &word;
#elif defined FAULT_ENDLESS_STRING
    static const uint64_t letter = 97;
    static const rollhouse_space endless = {.kind = ROLLHOUSE_STRING, .axes = 1, .shape = &letter, .n = 1ull << 40};
    d.action = &endless;
#elif defined FAULT_OPTION_COUNT
    d.option_count = 65;
#elif defined FAULT_NULL_OPTIONS
    d.option_count = 1;
#elif defined FAULT_NO_RENDER
    d.render_width = d.render_height = 64;
    d.render_fps = 30;
#elif defined FAULT_PICTURE_SIZE
    d.render_width = d.render_height = 100000;
    d.render_fps = 30;
#elif defined FAULT_HUGE_SHAPE
    static const rollhouse_space space = {
        .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_U8, .axes = 2, .shape = huge, .low = zero, .high = most, .bounds = 1};
    d.observation = &space;
    d.observation_count = 1;
#elif defined FAULT_LOW_ABOVE_HIGH
    static const rollhouse_space space = {
        .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_U8, .axes = 1, .shape = shape, .low = most, .high = zero, .bounds = 1};
    d.observation = &space;
    d.observation_count = 1;
#elif defined FAULT_MASK_SIZE || defined FAULT_MASK_TYPE || defined FAULT_TWO_MASKS || defined FAULT_MASK_WITHOUT_BEGINNING
#if defined FAULT_MASK_SIZE
    static const uint64_t choices[1] = {3};
#else
    static const uint64_t choices[1] = {2};
#endif
#if defined FAULT_MASK_TYPE
    enum { MASK = ROLLHOUSE_U8 };
#else
    enum { MASK = ROLLHOUSE_BOOL };
#endif
    static const rollhouse_space masks[2] = {
        {.name = "action_mask", .kind = ROLLHOUSE_ACTION_MASK, .dtype = MASK, .axes = 1, .shape = choices},
        {.name = "other", .kind = ROLLHOUSE_ACTION_MASK, .dtype = MASK, .axes = 1, .shape = choices}};
    d.infos = masks;
    d.info_count = 1;
#if defined FAULT_TWO_MASKS
    d.info_count = 2;
#endif
#elif defined FAULT_METHOD_COUNT || defined FAULT_NULL_METHODS || defined FAULT_METHOD_NAME || \
    defined FAULT_LONG_METHOD_NAME || defined FAULT_METHOD_TWICE || defined FAULT_METHOD_CHANGES || \
    defined FAULT_ENDLESS_PARAMS || defined FAULT_METHODS_WITHOUT_CALL
    static rollhouse_method methods[2] = {{.name = "look"}, {.name = "push", .changes = 1}};
    d.methods = methods;
    d.method_count = 2;
#if defined FAULT_METHOD_COUNT
    d.method_count = 4000000000u;
#elif defined FAULT_NULL_METHODS
    d.methods = NULL;
#elif defined FAULT_METHOD_NAME
    methods[1].name = "push it";
#elif defined FAULT_LONG_METHOD_NAME
    methods[1].name = endless;
#elif defined FAULT_METHOD_TWICE
    methods[1].name = "look";
#elif defined FAULT_METHOD_CHANGES
    methods[1].changes = 7;
#elif defined FAULT_ENDLESS_PARAMS
    methods[1].params = endless;
#endif
#elif defined FAULT_NO_ACTIONS
    static const rollhouse_space space = {.kind = ROLLHOUSE_DISCRETE, .n = 0};
    d.action = &space;
#elif defined FAULT_SECOND_WITHOUT_ID
    if (env == 1) d.id = NULL;
#elif defined ODD_LENGTHS_FAIL
    static const rollhouse_option length = {
        .name = "length", .summary = "number of cells", .kind = ROLLHOUSE_INTEGER, .default_value = {.integer = 2}};
    d.options = &length;
    d.option_count = 1;
#endif
    return &d;
}

static int32_t make(const rollhouse_make *make, rollhouse_block **block) {
    (void)make;
#if defined FAULT_MAKE_FAILS || defined FAULT_SECOND_WITHOUT_ID
    strcpy(make->error, "no licence is left");
    return ROLLHOUSE_FAILED;
#elif defined FAULT_NO_BLOCK
    *block = NULL;
    return ROLLHOUSE_OK;
#else
    *block = calloc(1, sizeof **block);
    return ROLLHOUSE_OK;
#endif
}

static void end(rollhouse_block *block) { free(block); }

static void show(const rollhouse_block *b, uint32_t lane, void *const *obs) {
    ((double *)obs[0])[2 * lane] = (double)b->steps[lane];
    ((double *)obs[0])[2 * lane + 1] = (double)(b->drawn[lane] >> 32);
    ((int64_t *)obs[1])[lane] = 1 + b->steps[lane] % 5;
}

static void begin(rollhouse_block *b, uint32_t lane, const rollhouse_random *random) {
    b->steps[lane] = 0;
#if defined FAULT_STRAY_DRAW
    lane += 1000;
    b->drawn[0] = random->word(random->context, lane);
#else
    b->drawn[lane] = random->word(random->context, lane) ^ random->half(random->context, lane);
#endif
}

static int32_t reset(rollhouse_block *b, rollhouse_reset *reset) {
    for (uint32_t lane = 0; lane < reset->lanes_in_block; lane++)
        if (rollhouse_has(reset->lanes, lane)) begin(b, lane, reset->random), show(b, lane, reset->obs);
    return ROLLHOUSE_OK;
}

static int32_t step(rollhouse_block *b, rollhouse_step *step) {
    for (uint32_t lane = 0; lane < step->lanes_in_block; lane++) {
        if (rollhouse_has(step->reset, lane)) begin(b, lane, step->random);
        else if (!rollhouse_has(step->skip, lane)) b->steps[lane] += ((const int64_t *)step->actions)[lane];
        step->rewards[lane] = 1;
        show(b, lane, step->obs);
        step->truncated |= (uint64_t)(b->steps[lane] >= 15) << lane;
    }
#if defined FAULT_FAILS_IN_STEP
    return b->steps[0] >= 3 ? ROLLHOUSE_FAILED : ROLLHOUSE_OK;
#elif defined FAULT_LOSES_LANES
    step->lost = 1;
#elif defined FAULT_FLAGS_FOR_ALL
    step->terminated = UINT64_MAX;
#endif
    return ROLLHOUSE_OK;
}

static uint32_t state_hash(const rollhouse_block *b, uint32_t lane) {
    uint64_t hash = rollhouse_hash_add(UINT64_C(0x9E3779B97F4A7C15), (uint64_t)b->steps[lane]);
#if defined FAULT_NOT_DETERMINISTIC
    static uint64_t calls;
    hash = rollhouse_hash_add(hash, calls++);
#endif
    return rollhouse_hash_end(rollhouse_hash_add(hash, b->drawn[lane]));
}

static uint32_t state(const rollhouse_block *b, uint32_t lane, double *state, uint32_t room) {
#if defined FAULT_STATE_LENGTH
    (void)b, (void)lane, (void)state;
    return room + 1;
#else
    if (room >= 2) state[0] = (double)b->steps[lane], state[1] = (double)b->drawn[lane];
    return 2;
#endif
}

static int32_t set_state(rollhouse_block *b, uint32_t lane, const double *state, uint32_t count) {
    (void)b, (void)lane, (void)state, (void)count;
    return ROLLHOUSE_UNSUPPORTED;
}

static int32_t text(const rollhouse_block *b, uint32_t lane, char *text, uint32_t room) {
    (void)b, (void)lane;
    memset(text, 'x', room); /* without its end */
    return ROLLHOUSE_OK;
}

static void seed(rollhouse_block *b, uint32_t lane, uint64_t seed) { b->drawn[lane] = seed; }

#if defined ODD_LENGTHS_FAIL
static int32_t set_options(rollhouse_block *b, uint32_t lane, const rollhouse_value *values,
                           const rollhouse_sequence *sequences) {
    return values->integer % 2 ? ROLLHOUSE_FAILED : ROLLHOUSE_OK;
}

static uint64_t revive(rollhouse_block *b, uint64_t lanes) { return lanes; }
#endif

#if defined OLDER_TABLE
static void verdict(const rollhouse_block *block, uint32_t lane, rollhouse_verdict *verdict) {
    (void)block;
    verdict->result = ROLLHOUSE_WIN + lane;
}
#endif

static rollhouse_plugin_table table = {
    .version = ROLLHOUSE_VERSION, .size = sizeof table, .env_count = 1, .describe = describe, .make = make,
    .close = end, .reset = reset, .step = step, .state_hash = state_hash, .state = state, .set_state = set_state,
    .text = text};

#if defined FAULT_NO_SYMBOL
const rollhouse_plugin_table *another_name(void) { return &table; }
#else
const rollhouse_plugin_table *rollhouse_plugin(void) {
#if defined FAULT_NO_TABLE
    return NULL;
#elif defined FAULT_VERSION
    table.version = 2;
#elif defined FAULT_TABLE_SIZE
    table.size = 21;
#elif defined FAULT_SHORT_TABLE
    table.size = offsetof(rollhouse_plugin_table, step);
#elif defined FAULT_NO_STEP
    table.step = NULL;
#elif defined FAULT_SEED_ALONE
    table.seed = seed;
#elif defined FAULT_STATE_ALONE
    table.set_state = NULL;
#elif defined FAULT_NO_ENVS
    table.env_count = 0;
#elif defined FAULT_ENV_COUNT
    table.env_count = 4000000000u;
#elif defined FAULT_TWO_OF_ONE_ID || defined FAULT_SECOND_WITHOUT_ID
    table.env_count = 2;
#elif defined ODD_LENGTHS_FAIL
    table.set_options = set_options;
    table.revive = revive;
#elif defined OLDER_TABLE
    table.verdict = verdict;
    table.size = offsetof(rollhouse_plugin_table, verdict);
#elif defined LARGER_TABLE
    static struct { rollhouse_plugin_table known; void (*unknown)(void); } larger;
    larger.known = table;
    larger.known.size = sizeof larger;
    return &larger.known;
#elif defined FAULT_FLUSHES_TO_ZERO
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined FAULT_UNDEFINED
    extern void nobody_defines_this(void);
    nobody_defines_this();
#endif
    return &table;
}
#endif
