/* Learn and answer in the main loop of a small board: setup() once, then loop() for ever.
 *
 * Everything is allocated while setup() opens the bundle and makes one step. The bundle is that of a
 * job whose results are the loss and the scores of each class, so that `evaluate` answers from the
 * weights as they are, without a second model. BUNDLE names its folder.
 */
#include <flow2onnx.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace {

constexpr std::size_t BATCH = 8, VALUES = 20;

std::optional<flow2onnx::Trainer> trainer;
flow2onnx::Tensors results;
std::array<float, BATCH * VALUES> readings;
std::array<std::int32_t, BATCH> kinds;
std::uint32_t ticks;

/* What a sensor would say: each kind of motion has a rhythm of its own. */
void read_sensor() {
    for (std::size_t row = 0; row < BATCH; row++) {
        kinds[row] = std::int32_t((row + ticks) % 4);
        for (std::size_t i = 0; i < VALUES; i++) {
            const auto rhythm = std::size_t(kinds[row]) + 2;
            readings[row * VALUES + i] = float((i + ticks) % rhythm == 0) - 0.25f;
        }
    }
    ticks++;
}

flow2onnx::Feed seen() { return {"readings", readings, {BATCH, VALUES}}; }
flow2onnx::Feed meant() { return {"kinds", kinds, {BATCH}}; }

int right_answers() {
    int right = 0;
    trainer->evaluate({seen(), meant()}, results); /* the loss of these is not looked at */
    const flow2onnx::Tensor scores = results[1];
    for (std::size_t row = 0; row < BATCH; row++) {
        const auto row_scores = scores.at(row).as<float>();
        std::size_t best = 0;
        for (std::size_t i = 1; i < row_scores.size(); i++) {
            if (row_scores[i] > row_scores[best]) best = i;
        }
        right += std::int32_t(best) == kinds[row];
    }
    return right;
}

} // namespace

void setup() {
    const char *bundle = std::getenv("BUNDLE");
    flow2onnx::Options options;
    options.threads = 1;
    trainer.emplace(bundle == nullptr ? "bundle" : bundle, options);
    for (int i = 0; i < 4; i++) { /* both buffers of the state, the results: all there is */
        read_sensor();
        trainer->step({seen(), meant()}, results);
        right_answers();
    }
}

void loop() {
    read_sensor();
    trainer->step({seen(), meant()}, results);
    if (ticks % 50 == 0) {
        const double loss = double(results[0].as<float>()[0]);
        std::printf("loss %.4f, %d of %d right\n", loss, right_answers(), int(BATCH));
    }
}
