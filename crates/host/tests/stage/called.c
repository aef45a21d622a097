/* A walk on a line whose lanes can be asked and moved by calls, and some of whose methods break. */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "rollhouse.h"

enum { LANES = ROLLHOUSE_BLOCK_LANES };

struct rollhouse_block {
    double place[LANES], pushed[LANES];
    uint32_t lanes;
};

static const double low[1] = {-1e9}, high[1] = {1e9};
static const uint64_t shape[1] = {1};
static const rollhouse_space observation = {.kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_F64, .axes = 1, .shape = shape, .low = low, .high = high, .bounds = 1};
static const rollhouse_space action = {.kind = ROLLHOUSE_DISCRETE, .n = 2};

enum { WHERE, PUSH, SHAKE, SELDOM, LOSE, FAIL, CRASH, LIE, LATIN, NOTHING, SHOUT, METHODS };
static const rollhouse_method methods[METHODS] = {
    {.name = "where", .summary = "tells the place, and how often the lane was pushed"},
    {.name = "push", .params = "{\"type\": \"number\", \"minimum\": -9, \"maximum\": 9}", .changes = 1},
    {.name = "shake", .summary = "moves the walker by up to a unit, drawn from its generator", .changes = 1},
    {.name = "seldom", .changes = 1, .max_per_second = 2},
    {.name = "lose", .changes = 1},
    {.name = "fail", .changes = 1},
    {.name = "crash", .changes = 1},
    {.name = "lie", .summary = "says that its answer is longer than memory", .changes = 1},
    {.name = "latin", .summary = "answers with what is no UTF-8"},
    {.name = "nothing", .summary = "is listed, and not there"},
    {.name = "shout", .summary = "answers with that many letters"}};
static const rollhouse_description description = {
    .size = sizeof description, .deterministic = 1, .id = "c/Called-v0", .summary = "walk", .observation = &observation,
    .observation_count = 1, .action = &action, .max_episode_steps = 40, .methods = methods, .method_count = METHODS};

static const rollhouse_description *describe(uint32_t env) {
    (void)env;
    return &description;
}

static int32_t make(const rollhouse_make *make, rollhouse_block **block) {
    *block = calloc(1, sizeof **block);
    (*block)->lanes = make->lanes;
    return ROLLHOUSE_OK;
}

static void end(rollhouse_block *b) { free(b); }

static void begin(rollhouse_block *b, uint64_t lanes, void *const *obs, const rollhouse_random *random) {
    for (uint32_t lane = 0; lane < b->lanes; lane++) {
        if (!rollhouse_has(lanes, lane)) continue;
        ((double *)obs[0])[lane] = b->place[lane] = random->uniform(random->context, lane, -1, 1);
        b->pushed[lane] = 0;
    }
}

static int32_t reset(rollhouse_block *b, rollhouse_reset *reset) {
    begin(b, reset->lanes, reset->obs, reset->random);
    return ROLLHOUSE_OK;
}

static int32_t step(rollhouse_block *b, rollhouse_step *step) {
    for (uint32_t lane = 0; lane < b->lanes; lane++) {
        if (!rollhouse_has(step->skip | step->reset, lane))
            step->rewards[lane] = b->place[lane] += ((const int64_t *)step->actions)[lane] ? 1 : -1;
        ((double *)step->obs[0])[lane] = b->place[lane];
        step->terminated |= (uint64_t)(b->place[lane] > 12 || b->place[lane] < -12) << lane;
    }
    begin(b, step->reset, step->obs, step->random);
    return ROLLHOUSE_OK;
}

static uint32_t state_hash(const rollhouse_block *b, uint32_t lane) {
    double doubles[2] = {b->place[lane], b->pushed[lane]};
    return rollhouse_hash(doubles, 2);
}

static uint64_t revive(rollhouse_block *b, uint64_t lanes) {
    (void)b;
    return lanes;
}

static int32_t answer(rollhouse_call *call, int32_t status, const char *text) {
    call->answer_bytes = strlen(text);
    if (call->answer_bytes <= call->answer_room) memcpy(call->answer, text, call->answer_bytes);
    return status;
}

static int32_t call(rollhouse_block *b, rollhouse_call *call) {
    uint32_t lane = call->lane;
    double by = 0;
    char text[100];
    switch (call->method) {
    case PUSH:
        by = strtod(call->payload, NULL);
        if (by < -9 || by > 9) return answer(call, ROLLHOUSE_REFUSED, "a push is at most 9");
        break;
    case SHAKE: by = call->random->uniform(call->random->context, lane, -1, 1); break;
    case SELDOM: break;
    case LOSE: call->lost = 1; return ROLLHOUSE_OK;
    case FAIL: return ROLLHOUSE_FAILED;
    case CRASH: abort();
    case LIE: call->answer_bytes = UINT64_MAX; break;
    case LATIN: return answer(call, ROLLHOUSE_OK, "Stra\xdf" "e");
    case NOTHING: return ROLLHOUSE_UNSUPPORTED;
    case SHOUT:
        call->answer_bytes = strtoull(call->payload, NULL, 10);
        memset(call->answer, 'a', call->answer_bytes < call->answer_room ? call->answer_bytes : call->answer_room);
        return ROLLHOUSE_OK;
    }
    if (call->method != WHERE) b->place[lane] += by, b->pushed[lane]++;
    if (call->method == LIE) return ROLLHOUSE_OK;
    snprintf(text, sizeof text, "{\"place\": %a, \"pushed\": %g}", b->place[lane], b->pushed[lane]);
    return answer(call, ROLLHOUSE_OK, text);
}

static const rollhouse_plugin_table table = {
    .version = ROLLHOUSE_VERSION, .size = sizeof table, .env_count = 1, .describe = describe, .make = make, .close = end,
    .reset = reset, .step = step, .state_hash = state_hash, .revive = revive, .call = call};

const rollhouse_plugin_table *rollhouse_plugin(void) { return &table; }
