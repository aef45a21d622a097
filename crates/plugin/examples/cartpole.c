/* CartPole as a plug-in in C: keep a pole upright on a cart that is pushed left or right.
 *
 *     cc -std=c99 -O3 -ffp-contract=off -fPIC -shared -Icrates/plugin/include cartpole.c -o cartpole.so
 *
 * A state is four arrays of a double for each lane, and the loops over lanes have no branches, so that the compiler makes
 * vector code of them. Sine and cosine are polynomials, because those of libm have other bits on other machines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rollhouse.h"

enum { LANES = ROLLHOUSE_BLOCK_LANES };

struct rollhouse_block {
    double x[LANES], x_dot[LANES], theta[LANES], theta_dot[LANES];
    double bound[LANES]; /* option of the lane */
};

static const double gravity = 9.8, pole_mass = 0.1, total_mass = 1.1, length = 0.5, force = 10.0, tau = 0.02;
static const double x_limit = 2.4, theta_limit = 12 * 2 * 3.14159265358979323846 / 360;

static const double low[4] = {-4.8, -INFINITY, -0.41887902047863906, -INFINITY};
static const double high[4] = {4.8, INFINITY, 0.41887902047863906, INFINITY};
static const uint64_t shape[1] = {4};
static const char *const elements[4] = {"position", "velocity", "angle", "angular_velocity"};
static const char *const actions[2] = {"left", "right"};
static const rollhouse_space observation = {
    .kind = ROLLHOUSE_BOX, .dtype = ROLLHOUSE_F32, .axes = 1, .shape = shape, .low = low, .high = high, .bounds = 4};
static const rollhouse_space action = {.kind = ROLLHOUSE_DISCRETE, .n = 2};
static const rollhouse_option options[1] = {
    {.name = "bound", .summary = "each element of the first state is drawn from [-bound, bound)",
     .kind = ROLLHOUSE_NUMBER, .default_value = {.number = 0.05}}};
static const rollhouse_description description = {
    .size = sizeof(rollhouse_description), .deterministic = 1, .id = "c/CartPole-v0",
    .summary = "keep a pole upright on a cart, from a plug-in in C",
    .observation = &observation, .observation_count = 1, .observation_names = elements, .observation_name_count = 4,
    .action = &action, .action_names = actions, .action_name_count = 2,
    .options = options, .option_count = 1, .max_episode_steps = 500};

static const rollhouse_description *describe(uint32_t env) {
    (void)env;
    return &description;
}

static int32_t make(const rollhouse_make *make, rollhouse_block **block) {
    rollhouse_block *made = calloc(1, sizeof *made);
    if (!made) return ROLLHOUSE_FAILED;
    for (uint32_t lane = 0; lane < make->lanes; lane++) {
        made->bound[lane] = make->values[lane].number;
        if (made->bound[lane] < 0 && make->error_bytes > 0) {
            strncpy(make->error, "`bound` must not be negative", make->error_bytes - 1);
            free(made);
            return ROLLHOUSE_FAILED;
        }
    }
    *block = made;
    return ROLLHOUSE_OK;
}

static void observe(const rollhouse_block *b, uint32_t lane, float *obs) {
    obs[4 * lane] = (float)b->x[lane];
    obs[4 * lane + 1] = (float)b->x_dot[lane];
    obs[4 * lane + 2] = (float)b->theta[lane];
    obs[4 * lane + 3] = (float)b->theta_dot[lane];
}

static void begin(rollhouse_block *b, uint64_t lanes, float *obs, const rollhouse_random *random) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (!rollhouse_has(lanes, lane)) continue;
        double bound = b->bound[lane];
        b->x[lane] = random->uniform(random->context, lane, -bound, bound);
        b->x_dot[lane] = random->uniform(random->context, lane, -bound, bound);
        b->theta[lane] = random->uniform(random->context, lane, -bound, bound);
        b->theta_dot[lane] = random->uniform(random->context, lane, -bound, bound);
        observe(b, lane, obs);
    }
}

static int32_t reset(rollhouse_block *b, rollhouse_reset *reset) {
    begin(b, reset->lanes, reset->obs[0], reset->random);
    return ROLLHOUSE_OK;
}

/* Makes one Euler step of dt[i] in each lane: 0 leaves the lane where it is. */
static void advance(rollhouse_block *restrict b, const double *restrict push, const double *restrict dt) {
    for (uint32_t i = 0; i < LANES; i++) {
        double t = b->theta[i], s = t * t, rate = b->theta_dot[i];
        double sine = t * (1 + s * (-1. / 6 + s * (1. / 120 + s * (-1. / 5040 + s * (1. / 362880 - s / 39916800)))));
        double cosine = 1 + s * (-1. / 2 + s * (1. / 24 + s * (-1. / 720 + s * (1. / 40320 - s / 3628800))));
        double swing = push[i] + pole_mass / total_mass * length * rate * rate * sine;
        double turn = (gravity * sine - cosine * swing) / (length * (4. / 3 - pole_mass / total_mass * cosine * cosine));
        b->x[i] += dt[i] * b->x_dot[i];
        b->x_dot[i] += dt[i] * (swing - pole_mass / total_mass * length * turn * cosine);
        b->theta[i] += dt[i] * rate;
        b->theta_dot[i] += dt[i] * turn;
    }
}

static int32_t step(rollhouse_block *b, rollhouse_step *step) {
    float *obs = step->obs[0];
    const int64_t *act = step->actions;
    double push[LANES] = {0}, dt[LANES];
    uint8_t fallen[LANES];
    uint32_t n = step->lanes_in_block;
    uint64_t still = step->skip | step->reset;
    for (uint32_t i = 0; i < n; i++) push[i] = (act[i] == 1 ? force : -force) / total_mass;
    for (uint64_t i = 0; i < LANES; i++) dt[i] = still >> i & 1 ? 0 : tau;
    advance(b, push, dt);
    for (uint32_t i = 0; i < LANES; i++) fallen[i] = (fabs(b->x[i]) > x_limit) | (fabs(b->theta[i]) > theta_limit);
    for (uint32_t i = 0; i < n; i++) observe(b, i, obs);
    for (uint32_t i = 0; i < n; i++) step->rewards[i] = 1;
    step->terminated = rollhouse_set(fallen, n);
    if (step->reset) begin(b, step->reset, obs, step->random);
    return ROLLHOUSE_OK;
}

static uint32_t state(const rollhouse_block *b, uint32_t lane, double *state, uint32_t room) {
    if (room >= 4) state[0] = b->x[lane], state[1] = b->x_dot[lane], state[2] = b->theta[lane], state[3] = b->theta_dot[lane];
    return 4;
}

static int32_t set_state(rollhouse_block *b, uint32_t lane, const double *state, uint32_t count) {
    if (count != 4) return ROLLHOUSE_UNSUPPORTED;
    b->x[lane] = state[0], b->x_dot[lane] = state[1], b->theta[lane] = state[2], b->theta_dot[lane] = state[3];
    return ROLLHOUSE_OK;
}

static uint32_t state_hash(const rollhouse_block *b, uint32_t lane) {
    double doubles[4];
    state(b, lane, doubles, 4);
    return rollhouse_hash(doubles, 4);
}

static void end(rollhouse_block *b) { free(b); }

static const rollhouse_plugin_table table = {
    .version = ROLLHOUSE_VERSION, .size = sizeof table, .env_count = 1, .describe = describe, .make = make,
    .close = end, .reset = reset, .step = step, .state_hash = state_hash, .state = state, .set_state = set_state};

const rollhouse_plugin_table *rollhouse_plugin(void) { return &table; }
