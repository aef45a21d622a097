// A small grid world as a plug-in in C++: find the treasure of a room with pits, which is drawn anew at each reset.
//
//     c++ -std=c++17 -O2 -ffp-contract=off -fPIC -shared -Icrates/plugin/include gridworld.cpp -o gridworld.so
//
// The observation is a dict of a position and a picture of the room; infos and pictures are shown as well.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "rollhouse.h"

namespace {

constexpr int side = 8, cells = side * side, pits = 6;
enum Cell : std::uint8_t { FLOOR, PIT, TREASURE };

struct Room {
    std::array<Cell, cells> cell{};
    int at = 0;

    void begin(const rollhouse_random &random, std::uint32_t lane) {
        cell.fill(FLOOR);
        at = 0;
        for (int pit = 0; pit < pits; pit++) cell[1 + random.half(random.context, lane) % (cells - 1)] = PIT;
        cell[cells / 2 + random.half(random.context, lane) % (cells / 2)] = TREASURE;
    }

    // Goes up, right, down or left, not through walls.
    void go(std::int64_t direction) {
        if (direction == 0 && at >= side) at -= side;
        if (direction == 1 && at % side < side - 1) at += 1;
        if (direction == 2 && at < cells - side) at += side;
        if (direction == 3 && at % side > 0) at -= 1;
    }

    Cell found() const { return cell[at]; }
    void show(std::uint32_t lane, void *const *obs) const {
        auto *position = static_cast<std::int32_t *>(obs[0]) + 2 * lane;
        position[0] = at / side, position[1] = at % side;
        std::memcpy(static_cast<std::uint8_t *>(obs[1]) + cells * lane, cell.data(), cells);
    }
};

constexpr std::uint64_t pair[] = {2}, square[] = {side, side};
constexpr double zero = 0, last = side - 1, most = TREASURE;

constexpr rollhouse_space observation[] = {
    {nullptr, ROLLHOUSE_DICT, 0, 2, 0, nullptr, nullptr, nullptr, 0, 0, 0},
    {"position", ROLLHOUSE_BOX, ROLLHOUSE_I32, 0, 1, pair, &zero, &last, 1, 0, 0},
    {"room", ROLLHOUSE_BOX, ROLLHOUSE_U8, 0, 2, square, &zero, &most, 1, 0, 0},
};
constexpr rollhouse_space action = {nullptr, ROLLHOUSE_DISCRETE, 0, 0, 0, nullptr, nullptr, nullptr, 0, 0, 4};
constexpr rollhouse_space infos[] = {{"cell", ROLLHOUSE_BOX, ROLLHOUSE_U8, 0, 0, nullptr, nullptr, nullptr, 0, 0, 0}};
constexpr const char *directions[] = {"up", "right", "down", "left"};
const rollhouse_description *describe(std::uint32_t) noexcept {
    static const rollhouse_description description = [] {
        rollhouse_description d{};
        d.size = sizeof d, d.deterministic = 1;
        d.id = "cpp/Gridworld-v0";
        d.summary = "find the treasure of a room with pits, from a plug-in in C++";
        d.observation = observation, d.observation_count = 3;
        d.action = &action, d.action_names = directions, d.action_name_count = 4;
        d.infos = infos, d.info_count = 1;
        d.max_episode_steps = 100;
        d.render_width = d.render_height = 16 * side, d.render_fps = 10;
        return d;
    }();
    return &description;
}

}  // namespace

struct rollhouse_block {
    std::vector<Room> rooms;
};

namespace {

int32_t make(const rollhouse_make *make, rollhouse_block **block) noexcept try {
    *block = new rollhouse_block{std::vector<Room>(make->lanes)};
    return ROLLHOUSE_OK;
} catch (const std::bad_alloc &) {
    return ROLLHOUSE_FAILED;
}

int32_t reset(rollhouse_block *block, rollhouse_reset *reset) noexcept {
    for (std::uint32_t lane = 0; lane < block->rooms.size(); lane++) {
        if (!rollhouse_has(reset->lanes, lane)) continue;
        block->rooms[lane].begin(*reset->random, lane);
        block->rooms[lane].show(lane, reset->obs);
    }
    return ROLLHOUSE_OK;
}

int32_t step(rollhouse_block *block, rollhouse_step *step) noexcept {
    for (std::uint32_t lane = 0; lane < block->rooms.size(); lane++) {
        Room &room = block->rooms[lane];
        if (rollhouse_has(step->reset, lane)) {
            room.begin(*step->random, lane);
        } else if (!rollhouse_has(step->skip, lane)) {
            room.go(static_cast<const std::int64_t *>(step->actions)[lane]);
            Cell found = room.found();
            step->rewards[lane] = found == TREASURE ? 1.0 : found == PIT ? -1.0 : -0.01;
            step->terminated |= std::uint64_t{found != FLOOR} << lane;
            static_cast<std::uint8_t *>(step->infos[0])[lane] = found;
        }
        room.show(lane, step->obs);
    }
    return ROLLHOUSE_OK;
}

std::uint32_t state_hash(const rollhouse_block *block, std::uint32_t lane) noexcept {
    const Room &room = block->rooms[lane];
    std::uint64_t hash = rollhouse_hash_add(0x9E3779B97F4A7C15, std::uint64_t(room.at));
    for (Cell cell : room.cell) hash = rollhouse_hash_add(hash, cell);
    return rollhouse_hash_end(hash);
}

int32_t render(const rollhouse_block *block, std::uint32_t lane, std::uint32_t width, std::uint32_t height,
               std::uint8_t *pixels) noexcept {
    const std::uint8_t colours[4][3] = {{230, 230, 230}, {60, 60, 70}, {240, 190, 40}, {40, 90, 200}};
    const Room &room = block->rooms[lane];
    for (std::uint32_t y = 0; y < height; y++)
        for (std::uint32_t x = 0; x < width; x++) {
            int cell = int(y * side / height) * side + int(x * side / width);
            std::memcpy(pixels + 3 * (y * width + x), colours[cell == room.at ? 3 : room.cell[cell]], 3);
        }
    return ROLLHOUSE_OK;
}

void end(rollhouse_block *block) noexcept { delete block; }

/* Who finds the treasure has won, who falls into a pit has lost; when time is up it is neither. */
void verdict(const rollhouse_block *block, std::uint32_t lane, rollhouse_verdict *verdict) noexcept {
    Cell found = block->rooms[lane].found();
    verdict->result = found == TREASURE ? ROLLHOUSE_WIN : found == PIT ? ROLLHOUSE_LOSE : ROLLHOUSE_DRAW;
}

const rollhouse_plugin_table table = {
    ROLLHOUSE_VERSION, sizeof table, 1,       0,       describe, make,    end,     reset,  step,
    state_hash,        nullptr,      nullptr, nullptr, nullptr,  nullptr, nullptr, render, nullptr,
    verdict,           nullptr,      nullptr, nullptr, nullptr};

}  // namespace

const rollhouse_plugin_table *rollhouse_plugin(void) noexcept { return &table; }
