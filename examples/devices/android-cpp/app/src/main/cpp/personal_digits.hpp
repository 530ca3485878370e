/* A model of digits that learns the hand of the device's owner. What it was shown lies in
 * shown.safetensors, what it has learnt in state.safetensors; nothing leaves the device. */
#pragma once

#include <flow2onnx.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

class PersonalDigits {
public:
    static constexpr std::size_t Pixels = 8 * 8;

    /* Opens the bundle in a folder; examples and state are in another, or will be. */
    PersonalDigits(const std::string &bundle, const std::string &folder)
        : shown_(folder + "/shown.safetensors"), state_(folder + "/state.safetensors"),
          trainer_(bundle) {
        reload();
        if (!std::ifstream(shown_)) return;
        const flow2onnx::Tensors earlier = flow2onnx::load_safetensors(shown_);
        const auto images = earlier["images"].as<float>();
        const auto labels = earlier["labels"].as<std::int32_t>();
        images_.assign(images.begin(), images.end());
        labels_.assign(labels.begin(), labels.end());
    }

    /* Takes over what was learnt elsewhere since, such as in the background. */
    void reload() {
        if (std::ifstream(state_)) trainer_.load(state_);
    }

    /* Remembers an image, numbers from 0 to 1 row by row, and the digit that it shows. */
    void collect(const float *pixels, std::int32_t digit) {
        images_.insert(images_.end(), pixels, pixels + Pixels);
        labels_.push_back(digit);
        if (labels_.size() > Most) {
            images_.erase(images_.begin(), images_.begin() + Pixels);
            labels_.erase(labels_.begin());
        }
        const auto count = static_cast<std::int64_t>(labels_.size());
        flow2onnx::save_safetensors(
            shown_, {{"images", images_, {count, Pixels}}, {"labels", labels_, {count}}});
    }

    /* Learns all examples so often; the mean loss of the last time, or NaN without a full batch. A
     * StoppedError leaves the state saved that of the last time. */
    double train(int times) {
        const std::size_t batches = labels_.size() / Batch;
        double loss = NAN;
        for (int time = 0; time < times && batches > 0; time++) {
            loss = 0;
            for (std::size_t i = 0; i < batches; i++) loss += step(i) / double(batches);
            trainer_.save(state_);
        }
        return loss;
    }

    /* The digit that an image shows. */
    int predict(const float *pixels) {
        const flow2onnx::Span<float> image(pixels, Pixels);
        trainer_.predict({{image, {1, 1, 8, 8}}}, results_);
        const auto chances = results_[std::size_t{0}].as<float>();
        return int(std::max_element(chances.begin(), chances.end()) - chances.begin());
    }

    std::int64_t steps() const { return trainer_.steps(); }

    /* From any thread: ends the training under way. */
    void stop() { trainer_.stop(); }

private:
    static constexpr std::size_t Batch = 16, Most = 1024; /* examples kept, the latest */

    double step(std::size_t batch) {
        const flow2onnx::Span<float> images(&images_[batch * Batch * Pixels], Batch * Pixels);
        const flow2onnx::Span<std::int32_t> labels(&labels_[batch * Batch], Batch);
        trainer_.step({{images, {Batch, 1, 8, 8}}, {labels, {Batch}}}, results_);
        double sum = 0;
        for (const float loss : results_[std::size_t{0}].as<float>()) sum += double(loss);
        return sum / double(Batch);
    }

    std::string shown_, state_;
    flow2onnx::Trainer trainer_;
    flow2onnx::Tensors results_;
    std::vector<float> images_;
    std::vector<std::int32_t> labels_;
};
