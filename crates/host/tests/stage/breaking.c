/* A plug-in that draws at each step, and whose lanes break as their options tell them. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rollhouse.h"

enum { LANES = ROLLHOUSE_BLOCK_LANES };
enum { ABORT = 1, SEGFAULT, LOOP, EXIT, FAIL, LOSE, BOOLEAN, FILL };

struct rollhouse_block {
    double x[LANES];
    int64_t steps[LANES], fault[LANES], at[LANES];
};

/* Returns whether nothing has broken before, in this or another process. */
static int first(void) {
#if defined MARK
    return open(MARK, O_CREAT | O_EXCL, 0600) >= 0;
#else
    return 0;
#endif
}

static const double low[1] = {-1e9}, high[1] = {1e9}, no[1] = {0}, yes[1] = {1};
static const uint64_t shape[1] = {1};
static const rollhouse_space observation[3] = {
    {.kind = ROLLHOUSE_DICT, .parts = 2},
    {.name = "flag", .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_BOOL, .axes = 1, .shape = shape, .low = no, .high = yes, .bounds = 1},
    {.name = "x", .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_F64, .axes = 1, .shape = shape, .low = low, .high = high, .bounds = 1}};
static const rollhouse_space action = {.kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_F32, .axes = 1, .shape = shape, .low = no, .high = yes, .bounds = 1};
static const rollhouse_space infos[1] = {{.name = "steps", .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_I64}};
static const rollhouse_option options[2] = {
    {.name = "fault", .summary = "what goes wrong", .kind = ROLLHOUSE_INTEGER},
    {.name = "at", .summary = "in which step", .kind = ROLLHOUSE_INTEGER}};
static const rollhouse_description description = {
    .size = sizeof description, .deterministic = 1, .id = "c/Breaking-v0", .summary = "break",
    .observation = observation, .observation_count = 3, .action = &action, .infos = infos, .info_count = 1,
    .options = options, .option_count = 2, .max_episode_steps = 40, .render_width = 2, .render_height = 1, .render_fps = 5};

static const rollhouse_description *describe(uint32_t env) {
    (void)env;
    return &description;
}

static int32_t make(const rollhouse_make *make, rollhouse_block **block) {
    rollhouse_block *made = calloc(1, sizeof *made);
    for (uint32_t lane = 0; lane < make->lanes; lane++) {
        made->fault[lane] = make->values[2 * lane].integer;
        made->at[lane] = make->values[2 * lane + 1].integer;
    }
    *block = made;
    return ROLLHOUSE_OK;
}

static void observe(const rollhouse_block *b, uint32_t lane, void *const *obs) {
    ((uint8_t *)obs[0])[lane] = b->x[lane] > 0;
    ((double *)obs[1])[lane] = b->x[lane];
}

static void begin(rollhouse_block *b, uint64_t lanes, void *const *obs, const rollhouse_random *random) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (!rollhouse_has(lanes, lane)) continue;
        b->x[lane] = random->uniform(random->context, lane, -1, 1);
        b->steps[lane] = 0;
        observe(b, lane, obs);
    }
}

static int32_t reset(rollhouse_block *b, rollhouse_reset *reset) {
    begin(b, reset->lanes, reset->obs, reset->random);
    return ROLLHOUSE_OK;
}

static volatile int *volatile nowhere;

/* Writes ones over all memory that the process shares with others. */
static void fill(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (strstr(line, "/memfd:rollhouse") && sscanf(line, "%lx-%lx", &start, &end) == 2)
            memset((void *)start, 0xff, end - start);
    }
}

static int32_t step(rollhouse_block *b, rollhouse_step *step) {
    for (uint32_t lane = 0; lane < step->lanes_in_block; lane++) {
        if (!rollhouse_has(step->skip | step->reset, lane)) {
            b->x[lane] += ((const float *)step->actions)[lane] + step->random->uniform(step->random->context, lane, -1, 1);
            b->steps[lane]++;
            step->rewards[lane] = b->x[lane];
            ((int64_t *)step->infos[0])[lane] = b->steps[lane];
            if (b->x[lane] > 4) step->terminated |= UINT64_C(1) << lane;
        }
        observe(b, lane, step->obs);
        if (rollhouse_has(step->skip | step->reset, lane) || b->steps[lane] != b->at[lane]) continue;
        if (b->fault[lane] == 0 || !first()) continue;
        switch (b->fault[lane]) {
        case ABORT: abort();
        case SEGFAULT: *nowhere = 1; break;
        case LOOP: for (volatile int go = 1; go;) {} break;
        case EXIT: exit(0);
        case FAIL: return ROLLHOUSE_FAILED;
        case LOSE: step->lost |= UINT64_C(1) << lane; break;
        case FILL: fill(); abort();
        case BOOLEAN: ((uint8_t *)step->obs[0])[lane] = 77; break;
        }
    }
    begin(b, step->reset, step->obs, step->random);
    return ROLLHOUSE_OK;
}

static uint32_t state(const rollhouse_block *b, uint32_t lane, double *state, uint32_t room) {
    if (room >= 2) state[0] = b->x[lane], state[1] = (double)b->steps[lane];
    return 2;
}

static int32_t set_state(rollhouse_block *b, uint32_t lane, const double *state, uint32_t count) {
    if (count != 2) return ROLLHOUSE_UNSUPPORTED;
    b->x[lane] = state[0], b->steps[lane] = (int64_t)state[1];
    return ROLLHOUSE_OK;
}

static uint32_t state_hash(const rollhouse_block *b, uint32_t lane) {
    double doubles[2];
    state(b, lane, doubles, 2);
    return rollhouse_hash(doubles, 2);
}

static uint64_t revive(rollhouse_block *b, uint64_t lanes) {
    (void)b;
    return lanes;
}

static int32_t render(const rollhouse_block *b, uint32_t lane, uint32_t width, uint32_t height, uint8_t *pixels) {
    memset(pixels, b->x[lane] > 0 ? 200 : 100, (size_t)3 * width * height);
    return ROLLHOUSE_OK;
}

static int32_t text(const rollhouse_block *b, uint32_t lane, char *text, uint32_t room) {
    if (room < 2) return ROLLHOUSE_UNSUPPORTED;
    strcpy(text, b->x[lane] > 0 ? "+" : "-");
    return ROLLHOUSE_OK;
}

static void end(rollhouse_block *b) { free(b); }

/* Of the third lane a score that is none is said, and a result that is none. */
static void verdict(const rollhouse_block *b, uint32_t lane, rollhouse_verdict *verdict) {
    verdict->result = lane == 2 ? 9 : b->x[lane] > 0 ? ROLLHOUSE_WIN : ROLLHOUSE_LOSE;
    verdict->has_score = 1;
    verdict->score = lane == 2 ? INFINITY : b->x[lane];
}

static const rollhouse_plugin_table table = {
    .version = ROLLHOUSE_VERSION, .size = sizeof table, .env_count = 1, .describe = describe, .make = make, .close = end,
    .reset = reset, .step = step, .state_hash = state_hash, .revive = revive, .state = state, .set_state = set_state,
    .render = render, .text = text, .verdict = verdict};

const rollhouse_plugin_table *rollhouse_plugin(void) {
#if defined LOAD_ABORTS
    abort();
#elif defined LOAD_LOOPS
    for (volatile int go = 1; go;) {}
#elif defined LOAD_EXITS
    exit(0);
#endif
    return &table;
}
