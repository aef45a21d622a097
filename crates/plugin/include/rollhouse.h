/* Rollhouse's interface for plug-ins, version 1: envs in a shared object, written in C99, C++17 or anything that calls
 * like C. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A plug-in exports one function, rollhouse_plugin(), which returns its table of functions:
 *
 *     const rollhouse_plugin_table *rollhouse_plugin(void);
 *
 * Envs are made in blocks of up to 64 lanes. A lane is one instance of the env, and a set of lanes is a word of 64 bits,
 * lane 0 lowest. Columns (observations, actions, infos) are arrays of one row for each lane of the block, row-major:
 * element e of lane l of a column of width w is at [l * w + e].
 *
 * Rules for all functions:
 * - They do not throw and do not jump out (C++17 and later check the first). What goes wrong is returned.
 * - A block is called by one thread at a time, not always the same. Different blocks are called at the same time, so
 *   what blocks share is constant. `describe` and `make` may be called by several threads at once.
 * - Memory is its allocator's: nobody frees or keeps what the other side has passed, except that the table, and all to
 *   which a description points, stay as they are for as long as the process lives.
 * - A deterministic env does the same with the same numbers on each machine: everything random comes from the lane's
 *   generator, nothing depends on time, threads, addresses or other lanes, and no compiler was allowed to reorder
 *   arithmetic or to contract it (not -ffast-math; -ffp-contract=off).
 *
 * How it grows: the table and the structures whose first member is `size` may get new members at their end, with no new version.
 * `size` is sizeof of the structure as its writer was compiled. Who reads one ignores members that it does not know, and
 * takes those that are missing for 0. The others never change. Members called `reserved` are 0. */
#ifndef ROLLHOUSE_H
#define ROLLHOUSE_H

#include <stddef.h>
#include <stdint.h>

#define ROLLHOUSE_VERSION 1u
#define ROLLHOUSE_BLOCK_LANES 64

#if defined(__cplusplus) && __cplusplus >= 201703L
#define ROLLHOUSE_NOTHROW noexcept
#else
#define ROLLHOUSE_NOTHROW
#endif

#if defined(_WIN32)
#define ROLLHOUSE_EXPORT __declspec(dllexport)
#else
#define ROLLHOUSE_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of a space, and of an info that is an action mask: ROLLHOUSE_BOOL, one for each value of the discrete action,
 * 1 if the lane may take it next. */
enum {
    ROLLHOUSE_BOX = 1,
    ROLLHOUSE_DISCRETE = 2,
    ROLLHOUSE_DICT = 3,
    ROLLHOUSE_TUPLE = 4,
    ROLLHOUSE_ACTION_MASK = 5,
    ROLLHOUSE_STRING = 6,  /* a text: two columns, the code points of its characters and how many there are */
    ROLLHOUSE_SEQUENCE = 7 /* as many values of one box or discrete space as each value says: their column, with one axis
                              more in front, and how many there are */
};

/* Element types of a column. A bool is a byte, 0 or 1. */
enum {
    ROLLHOUSE_BOOL = 1,
    ROLLHOUSE_U8 = 2,
    ROLLHOUSE_I32 = 3,
    ROLLHOUSE_I64 = 4,
    ROLLHOUSE_F32 = 5,
    ROLLHOUSE_F64 = 6
};

/* Kinds of an option. */
enum {
    ROLLHOUSE_FLAG = 1,
    ROLLHOUSE_INTEGER = 2,
    ROLLHOUSE_NUMBER = 3,
    ROLLHOUSE_TEXT = 4,
    ROLLHOUSE_LIST = 5
};

/* What reset, step, make, set_state, set_options, render, text and call return. */
enum {
    ROLLHOUSE_OK = 0,
    ROLLHOUSE_FAILED = 1,      /* of reset, step and call: the whole block is lost, and is only closed any more */
    ROLLHOUSE_UNSUPPORTED = 2, /* of set_state, set_options, render, text and call: this env, or this lane, cannot */
    ROLLHOUSE_REFUSED = 3      /* of call: the env does not do it, and has changed nothing; the answer says why */
};

/* Results of an episode. */
enum { ROLLHOUSE_NO_RESULT = 0, ROLLHOUSE_WIN = 1, ROLLHOUSE_LOSE = 2, ROLLHOUSE_DRAW = 3 };

/* A block of lanes: what stands behind the pointer is the plug-in's. */
typedef struct rollhouse_block rollhouse_block;

/* A space, or a part of one. All texts are UTF-8 and end with 0.
 *
 * A string and a sequence are two columns each: the items, with zeros behind the last one, and a ROLLHOUSE_I64, their number.
 * Code points are ROLLHOUSE_U8 if those of all characters are below 256, else ROLLHOUSE_I32.
 *
 * An action of several columns is one row of the elements of all of them, one after the other: as ROLLHOUSE_I64 if all are
 * integers, as ROLLHOUSE_F32 if all are that, else as ROLLHOUSE_F64. Rollhouse refuses those that are none of the space. */
typedef struct rollhouse_space {
    const char *name;      /* of a part of a dict and of an info; else NULL */
    uint32_t kind;         /* ROLLHOUSE_BOX, ... */
    uint32_t dtype;        /* of a box; a discrete space is a column of int64 */
    uint32_t parts;        /* of a dict or tuple: its parts follow it in the array, each with its own parts behind it; of a
                              sequence 1: the space of its items follows it, with its parts; items of several columns
                              are one row of numbers each, as an action of several columns is */
    uint32_t axes;         /* of a box and a string: number of numbers in `shape` */
    const uint64_t *shape; /* of a box: extent of each axis; of a string: code points of the characters that it may have */
    const double *low;     /* of a box: lowest value of each element, may be -INFINITY */
    const double *high;    /* of a box: highest value of each element, may be INFINITY */
    uint64_t bounds;       /* of a box: number of numbers in `low` and in `high`: one for each element, or 1 for all */
    int64_t start;         /* of a discrete space: the smallest value; of a string: fewest characters; of a sequence: 1 if Python
                              has its values as one array, 0 as a tuple */
    uint64_t n;            /* of a discrete space: number of values, at least 1; of a string and a sequence: most items */
} rollhouse_space;

/* The value of an option: a flag (0 or 1) or an integer in `integer`, a number in `number`. Of a text or a list `integer`
 * is the length, and a rollhouse_sequence has the rest. */
typedef struct rollhouse_value {
    int64_t integer;
    double number;
} rollhouse_value;

/* What a text or a list has beside its length. */
typedef struct rollhouse_sequence {
    const char *text;      /* of a text: UTF-8, at most 4,096 bytes; may be NULL if it is empty, and needs no 0 at its end */
    const double *numbers; /* of a list: finite, at most 1,024; may be NULL if it is empty */
} rollhouse_sequence;

/* An option with which the env can be made. */
typedef struct rollhouse_option {
    const char *name;
    const char *summary; /* what it does, with its unit */
    uint32_t kind;       /* ROLLHOUSE_FLAG, ... */
    uint32_t reserved;
    rollhouse_value default_value;
} rollhouse_option;

/* A method of the env, which is called by its name on single lanes between two steps. */
typedef struct rollhouse_method {
    const char *name;        /* 1 to 64 letters, digits and "_-." */
    const char *summary;     /* what it does; may be NULL */
    const char *params;      /* JSON schema of the payload; NULL if the summary says enough */
    uint32_t changes;        /* 1: a call may change what the lane does afterwards, and is recorded with its step; else 0 */
    uint32_t max_per_second; /* most calls a second on one lane; 0 is no limit */
} rollhouse_method;

/* What an env says of itself. Lists that are empty may be NULL. */
typedef struct rollhouse_description {
    uint32_t size;
    uint32_t deterministic;             /* 1: start and actions decide everything, bit by bit; 0: something else does too */
    const char *id;                     /* e.g. "my/Maze-v0"; at most 128 bytes, no colon */
    const char *summary;                /* one sentence, for listings */
    const rollhouse_space *observation; /* one space, with its parts behind it; at most 64 columns */
    const rollhouse_space *action;      /* one space, with its parts behind it */
    const rollhouse_space *infos;       /* columns that each step gives beside the observation: boxes, bounds unused, and
                                           at most one action mask */
    const rollhouse_option *options;
    const char *const *observation_names; /* a name for each element of the observation, or none */
    const char *const *action_names;      /* a name for each action (discrete) or element (box), or none */
    uint32_t observation_count;           /* number of spaces in `observation`, with parts */
    uint32_t info_count;
    uint32_t option_count;
    uint32_t observation_name_count;
    uint32_t action_name_count;
    uint32_t max_episode_steps; /* time limit, which Rollhouse keeps; 0 is none */
    uint32_t render_width;      /* size of a picture in pixels; 0 if the env does not draw itself */
    uint32_t render_height;
    uint32_t render_fps; /* pictures, one for each step, in a second of a video */
    uint32_t action_count; /* number of spaces in `action`, with parts; 0 is one */
    const rollhouse_sequence *option_defaults; /* one for each option; may be NULL if none is a text or a list */
    uint32_t no_verdicts; /* 1 if `verdict` has nothing to say of this env, so that it is not asked */
    uint32_t method_count; /* number of methods, at most 128 */
    const rollhouse_method *methods; /* what `call` does in lanes of the env */
} rollhouse_description;

/* The generators of a block's lanes: NumPy's PCG64, as Gymnasium seeds it. Rollhouse seeds them and moves them to where
 * an episode began. Not for keeping: valid during the call. */
typedef struct rollhouse_random {
    uint32_t size;
    uint32_t reserved;
    void *context;
    uint64_t (*word)(void *context, uint32_t lane) ROLLHOUSE_NOTHROW; /* 64 random bits */
    uint32_t (*half)(void *context, uint32_t lane) ROLLHOUSE_NOTHROW; /* 32 random bits, half a word */
    /* a double in [low, high), as NumPy's uniform(low, high) */
    double (*uniform)(void *context, uint32_t lane, double low, double high) ROLLHOUSE_NOTHROW;
} rollhouse_random;

/* A position of a lane's generator: the seed, the 64-bit words drawn since, and the half word left over, if any. */
typedef struct rollhouse_start {
    uint64_t seed;
    uint64_t words;
    uint32_t half;
    uint32_t has_half;
} rollhouse_start;

/* With what a block is made. */
typedef struct rollhouse_make {
    uint32_t size;
    uint32_t env;                  /* number of the env in this plug-in */
    uint32_t lanes;                /* 1 to ROLLHOUSE_BLOCK_LANES */
    uint32_t option_count;         /* as described */
    const rollhouse_value *values; /* the options of lane 0 in the described order, then those of lane 1, ... */
    char *error;                   /* where a failed `make` may say why, in one sentence that ends with 0 */
    size_t error_bytes;            /* room there */
    const rollhouse_sequence *sequences; /* one for each value; NULL if no option is a text or a list */
} rollhouse_make;

/* A reset of lanes. */
typedef struct rollhouse_reset {
    uint32_t size;
    uint32_t lanes_in_block;
    uint64_t lanes;                 /* the lanes that begin an episode */
    void *const *obs;               /* each column of the observation; only rows of `lanes` are written */
    const rollhouse_random *random; /* the lanes' generators */
    uint64_t lost;                  /* written by the plug-in: lanes that failed; needs `revive` */
} rollhouse_reset;

/* A step of a block. */
typedef struct rollhouse_step {
    uint32_t size;
    uint32_t lanes_in_block;
    uint64_t skip;       /* lanes that do not move: only their observation may be written, as it is */
    uint64_t reset;      /* lanes that begin an episode instead of stepping, as `reset` does it */
    const void *actions; /* a row for each lane. Of lanes that step integers are in their space and floats finite, but
                            maybe out of bounds; rows of others are arbitrary */
    void *const *obs;    /* each column of the observation; the row of every lane that is not in `skip` is written */
    void *const *infos;  /* each column of info; rows of lanes that step are written */
    double *rewards;     /* one for each lane that steps; what is written for others is ignored */
    const rollhouse_random *random;
    uint64_t terminated; /* written by the plug-in, 0 before: lanes in a terminal state; they are reset next */
    uint64_t truncated;  /* lanes that a limit of the env's own cut */
    uint64_t lost;       /* lanes that failed; needs `revive` */
} rollhouse_step;

/* How an episode ended. What is no result counts as none, and a score that is not finite is left out. */
typedef struct rollhouse_verdict {
    uint32_t result;    /* ROLLHOUSE_NO_RESULT, ... */
    uint32_t has_score; /* 1 if there is a score */
    double score;
} rollhouse_verdict;

/* A call of a method on a lane. Payload and answer are UTF-8 and JSON by agreement; any text may come. */
typedef struct rollhouse_call {
    uint32_t size;
    uint32_t lane;
    uint32_t method;                /* number of the method among those described */
    uint32_t lost;                  /* written by the plug-in, 0 before: 1 if the lane has failed; needs `revive` */
    const char *payload;            /* what the method is given; a 0 follows it */
    uint64_t payload_bytes;         /* its length without that 0 */
    const rollhouse_random *random; /* the lanes' generators; a method that changes nothing draws nothing */
    char *answer;                   /* where the answer is written, or the reason of a refusal */
    uint64_t answer_room;           /* bytes there: 1 more than an answer may have, which is 1,048,576 */
    uint64_t answer_bytes;          /* written by the plug-in, 0 before: length of what it has written */
} rollhouse_call;

/* The table of a plug-in. Functions marked optional may be NULL. Lanes are numbers from 0. */
typedef struct rollhouse_plugin_table {
    uint32_t version; /* ROLLHOUSE_VERSION */
    uint32_t size;
    uint32_t env_count; /* number of envs, 1 to 256 */
    uint32_t reserved;

    /* Describes env number `env`, always in the same way. */
    const rollhouse_description *(*describe)(uint32_t env) ROLLHOUSE_NOTHROW;
    /* Makes a block, whose lanes are reset or put into a state before they are stepped. If it returns something else than ROLLHOUSE_OK, there is none. */
    int32_t (*make)(const rollhouse_make *make, rollhouse_block **block) ROLLHOUSE_NOTHROW;
    /* Ends a block and frees what it has. */
    void (*close)(rollhouse_block *block) ROLLHOUSE_NOTHROW;
    /* Begins an episode in lanes. */
    int32_t (*reset)(rollhouse_block *block, rollhouse_reset *reset) ROLLHOUSE_NOTHROW;
    /* Steps a block. It neither allocates nor waits, if it is to be fast. */
    int32_t (*step)(rollhouse_block *block, rollhouse_step *step) ROLLHOUSE_NOTHROW;
    /* Returns a hash of the exact bits of everything on which later states of the lane depend. See rollhouse_hash. */
    uint32_t (*state_hash)(const rollhouse_block *block, uint32_t lane) ROLLHOUSE_NOTHROW;

    /* Optional, all three or none: a plug-in whose lanes have generators of their own, instead of `random`. `position`
     * writes where a reset would begin to draw, and `restore` moves the generator there, in this or another process. */
    void (*seed)(rollhouse_block *block, uint32_t lane, uint64_t seed) ROLLHOUSE_NOTHROW;
    void (*position)(const rollhouse_block *block, uint32_t lane, rollhouse_start *start) ROLLHOUSE_NOTHROW;
    void (*restore)(rollhouse_block *block, uint32_t lane, const rollhouse_start *start) ROLLHOUSE_NOTHROW;

    /* Optional: makes lost lanes anew and returns those that can be used again, after a reset. */
    uint64_t (*revive)(rollhouse_block *block, uint64_t lanes) ROLLHOUSE_NOTHROW;
    /* Optional, both or none: the exact state of a lane as doubles, by which replays are sought faster and lanes go on with
     * other options. `state` returns
     * how many they are, 0 if there is no such view, and writes them if there is room for `room` of them. */
    uint32_t (*state)(const rollhouse_block *block, uint32_t lane, double *state, uint32_t room) ROLLHOUSE_NOTHROW;
    int32_t (*set_state)(rollhouse_block *block, uint32_t lane, const double *state, uint32_t count) ROLLHOUSE_NOTHROW;
    /* Optional: draws a lane as `height` rows of `width` pixels, top row first: red, green and blue bytes. The picture
     * depends on the state alone. */
    int32_t (*render)(const rollhouse_block *block, uint32_t lane, uint32_t width, uint32_t height,
                      uint8_t *pixels) ROLLHOUSE_NOTHROW;
    /* Optional: describes a lane in one line of printable ASCII that ends with 0, within `room` bytes. */
    int32_t (*text)(const rollhouse_block *block, uint32_t lane, char *text, uint32_t room) ROLLHOUSE_NOTHROW;
    /* Optional: says how the lane's episode ended, after its last step and before it is reset. All members of `verdict`
     * are 0 before. What is written depends on the state alone; what is written of a lane that plays on is ignored. */
    void (*verdict)(const rollhouse_block *block, uint32_t lane, rollhouse_verdict *verdict) ROLLHOUSE_NOTHROW;
    /* Optional: gives a lane, whose reset comes next, other options, in the described order; `sequences` is as in
     * rollhouse_make. Its generator stays as it is. A lane that fails in it is lost, until `revive`. Without it the options of this plug-in cannot be drawn for each
     * episode. Returns ROLLHOUSE_UNSUPPORTED if lanes of the env keep the options with which they were made. */
    int32_t (*set_options)(rollhouse_block *block, uint32_t lane, const rollhouse_value *values,
                           const rollhouse_sequence *sequences) ROLLHOUSE_NOTHROW;
    /* Needed if an info is an action mask: writes the mask of lanes that have just begun an episode, in a reset or a
     * step, to its column among `infos`, and nothing to the others. Returns the lanes that failed; needs `revive` then. */
    uint64_t (*first_infos)(rollhouse_block *block, uint64_t lanes, void *const *infos) ROLLHOUSE_NOTHROW;
    /* Needed if an env has methods: does what a method is for in a lane. What a method that changes the lane does depends
     * on the lane's state, its generator and the payload alone, so that replays repeat it; observations show it after the
     * next step. Other methods leave state and generator as they are. */
    int32_t (*call)(rollhouse_block *block, rollhouse_call *call) ROLLHOUSE_NOTHROW;
    /* Optional: returns 1 if the block has failed as a whole in a function that has no way to say so, as `state_hash`. It is asked
     * after each of these, and the block is only closed then. Programs that do not know it go on until the next `reset`,
     * `step` or `call`, which returns ROLLHOUSE_FAILED. */
    uint32_t (*failed)(const rollhouse_block *block) ROLLHOUSE_NOTHROW;
} rollhouse_plugin_table;

/* What a plug-in exports. */
ROLLHOUSE_EXPORT const rollhouse_plugin_table *rollhouse_plugin(void) ROLLHOUSE_NOTHROW;

/* Returns whether a set has a lane. */
static inline int rollhouse_has(uint64_t lanes, uint32_t lane) { return (int)(lanes >> lane & 1); }

/* Returns the set of the first `count` lanes, at most ROLLHOUSE_BLOCK_LANES, whose flags are 1 and not 0. Loops that
 * write flags to bytes become vector code, which loops that gather bits do not. `flags` has ROLLHOUSE_BLOCK_LANES bytes. */
static inline uint64_t rollhouse_set(const uint8_t *flags, uint32_t count) {
    uint64_t lanes = 0, word;
    for (uint32_t i = 0; i < ROLLHOUSE_BLOCK_LANES; i += 8) {
        word = 0;
        for (uint32_t byte = 0; byte < 8; byte++) word |= (uint64_t)flags[i + byte] << 8 * byte;
        /* Each of the eight bits is moved to the highest byte, to a place of its own. */
        lanes |= (word * UINT64_C(0x0102040810204080)) >> 56 << i;
    }
    return count < ROLLHOUSE_BLOCK_LANES ? lanes & ((UINT64_C(1) << count) - 1) : lanes;
}

/* Adds a word to a hash, which begins as 0x9E3779B97F4A7C15, and makes a state hash of it. */
static inline uint64_t rollhouse_hash_add(uint64_t hash, uint64_t word) {
    uint64_t product = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
    return product ^ product >> 32;
}
static inline uint32_t rollhouse_hash_end(uint64_t hash) {
    return (uint32_t)((hash ^ hash >> 29) * UINT64_C(0xBF58476D1CE4E5B9) >> 32);
}

/* Returns the state hash of doubles. */
static inline uint32_t rollhouse_hash(const double *state, size_t count) {
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = 0; i < count; i++) {
        union {
            double number;
            uint64_t word;
        } bits;
        bits.number = state[i];
        hash = rollhouse_hash_add(hash, bits.word);
    }
    return rollhouse_hash_end(hash);
}

#ifdef __cplusplus
}
#endif
#endif
