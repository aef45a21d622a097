/* A walk that says which of its actions it takes: in each cell every second one. An action that it does not take ends the
 * episode with a reward of -1. */
#include <stdlib.h>

#include "rollhouse.h"

enum { LANES = ROLLHOUSE_BLOCK_LANES, ACTIONS = 4, CELLS = 20 };

struct rollhouse_block {
    uint64_t cell[LANES], far[LANES];
    uint32_t lanes;
};

static const double low[1] = {0}, high[1] = {CELLS};
static const uint64_t shape[1] = {1}, actions[1] = {ACTIONS};
static const rollhouse_space observation = {.kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_I64, .axes = 1, .shape = shape, .low = low, .high = high, .bounds = 1};
static const rollhouse_space action = {.kind = ROLLHOUSE_DISCRETE, .n = ACTIONS};
static const rollhouse_space infos[2] = {
    {.name = "gone", .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_BOOL},
    {.name = "action_mask", .kind = ROLLHOUSE_ACTION_MASK, .dtype = ROLLHOUSE_BOOL, .axes = 1, .shape = actions}};
static const rollhouse_option options[1] = {
    {.name = "far", .summary = "cells of which one is the first", .kind = ROLLHOUSE_INTEGER, .default_value = {.integer = 4}}};
static const rollhouse_description description = {
    .size = sizeof description, .deterministic = 1, .id = "c/Masked-v0", .summary = "walk", .observation = &observation,
    .observation_count = 1, .action = &action, .infos = infos, .info_count = 2, .options = options, .option_count = 1, .max_episode_steps = 9};

static const rollhouse_description *describe(uint32_t env) {
    (void)env;
    return &description;
}

static int32_t set_options(rollhouse_block *b, uint32_t lane, const rollhouse_value *values, const rollhouse_sequence *none) {
    (void)none;
    if (values->integer < 1 || values->integer >= CELLS) return ROLLHOUSE_FAILED;
    b->far[lane] = (uint64_t)values->integer;
    return ROLLHOUSE_OK;
}

static int32_t make(const rollhouse_make *make, rollhouse_block **block) {
    *block = calloc(1, sizeof **block);
    (*block)->lanes = make->lanes;
    for (uint32_t lane = 0; lane < make->lanes; lane++)
        if (set_options(*block, lane, make->values + lane, NULL) != ROLLHOUSE_OK) return ROLLHOUSE_FAILED;
    return ROLLHOUSE_OK;
}

static void end(rollhouse_block *b) { free(b); }

static int takes(const rollhouse_block *b, uint32_t lane, uint64_t action) { return (b->cell[lane] + action) % 2 == 0; }

static void mask(const rollhouse_block *b, uint32_t lane, void *const *infos) {
    for (uint32_t i = 0; i < ACTIONS; i++) ((uint8_t *)infos[1])[lane * ACTIONS + i] = (uint8_t)takes(b, lane, i);
}

static void begin(rollhouse_block *b, uint32_t lane, const rollhouse_random *random, void *const *obs) {
    b->cell[lane] = (uint64_t)random->uniform(random->context, lane, 0, (double)b->far[lane]);
    ((int64_t *)obs[0])[lane] = (int64_t)b->cell[lane];
}

static int32_t reset(rollhouse_block *b, rollhouse_reset *reset) {
    for (uint32_t lane = 0; lane < b->lanes; lane++)
        if (rollhouse_has(reset->lanes, lane)) begin(b, lane, reset->random, reset->obs);
    return ROLLHOUSE_OK;
}

static int32_t step(rollhouse_block *b, rollhouse_step *step) {
    for (uint32_t lane = 0; lane < b->lanes; lane++) {
        if (rollhouse_has(step->reset, lane)) begin(b, lane, step->random, step->obs);
        else if (!rollhouse_has(step->skip, lane)) {
            uint64_t action = ((const uint64_t *)step->actions)[lane];
            int taken = takes(b, lane, action);
            b->cell[lane] = (b->cell[lane] + action + 1) % CELLS;
            step->rewards[lane] = taken ? 1 : -1;
            step->terminated |= (uint64_t)!taken << lane;
            ((uint8_t *)step->infos[0])[lane] = b->cell[lane] > 9;
            mask(b, lane, step->infos);
        }
        ((int64_t *)step->obs[0])[lane] = (int64_t)b->cell[lane];
    }
    return ROLLHOUSE_OK;
}

static uint64_t first_infos(rollhouse_block *b, uint64_t lanes, void *const *infos) {
    for (uint32_t lane = 0; lane < b->lanes; lane++)
        if (rollhouse_has(lanes, lane)) mask(b, lane, infos);
    return 0;
}

static uint32_t state_hash(const rollhouse_block *b, uint32_t lane) {
    return rollhouse_hash_end(rollhouse_hash_add(UINT64_C(0x9E3779B97F4A7C15), b->cell[lane]));
}

static const rollhouse_plugin_table table = {
    .version = ROLLHOUSE_VERSION, .size = sizeof table, .env_count = 1, .describe = describe, .make = make, .close = end,
    .reset = reset, .step = step, .state_hash = state_hash, .set_options = set_options, .first_infos = first_infos};

const rollhouse_plugin_table *rollhouse_plugin(void) { return &table; }
