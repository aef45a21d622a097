/* c/CartPole-v0 of crates/plugin/examples/cartpole.c, whose steps take as long as the process's own environment says: so one
 * node of two is slow, whatever machine they run on.
 *
 *     STEP_MICROSECONDS=20000 rollhouse node --set plugin=trusted:delayed.so
 */
#define _POSIX_C_SOURCE 199309L
#include <stdlib.h>
#include <time.h>

#define rollhouse_plugin undelayed_plugin
#include "cartpole.c"
#undef rollhouse_plugin

static int32_t delayed_step(rollhouse_block *b, rollhouse_step *of) {
    const char *micros = getenv("STEP_MICROSECONDS");
    long pause = micros ? atol(micros) : 0;
    struct timespec time = {pause / 1000000, pause % 1000000 * 1000};
    /* What is tried as the plug-in is loaded has fewer lanes, and its thousands of steps need not take minutes. */
    if (pause > 0 && of->lanes_in_block >= 8) nanosleep(&time, NULL);
    return step(b, of);
}

const rollhouse_plugin_table *rollhouse_plugin(void) {
    static rollhouse_plugin_table delayed;
    delayed = table;
    delayed.step = delayed_step;
    return &delayed;
}
