/* Learn handwritten digits in a console: digits FOLDER [EPOCHS].
 *
 * FOLDER holds bundle/ and digits.safetensors, as `python -m examples.c.prepare FOLDER` writes them.
 * Training goes on from FOLDER/state.safetensors if there is one.
 */
#include <flow2onnx.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>

using namespace flow2onnx;

namespace {

double mean(Span<float> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

void train(Trainer &trainer, const Tensors &digits, int epochs) {
    const Tensor images = digits["images"], labels = digits["labels"]; /* batch by batch */
    const auto batches = std::size_t(images.shape()[0]);
    Tensors results;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double loss = 0;
        for (std::size_t i = 0; i < batches; i++) {
            trainer.step({images.at(i), labels.at(i)}, results);
            loss += mean(results[0].as<float>()) / double(batches);
        }
        std::printf("epoch %d: loss %.4f\n", epoch, loss);
    }
}

double accuracy(Trainer &trainer, const Tensors &digits) {
    const Tensor tests = digits["tests"], answers = digits["answers"];
    std::size_t right = 0, rows = 0;
    Tensors results;
    for (std::size_t i = 0; i < std::size_t(tests.shape()[0]); i++) {
        const Tensor batch = tests.at(i);
        trainer.predict({Feed(Tensor({nullptr, batch.dtype(), batch.shape().size(),
                                      batch.shape().data(), batch.data()}))}, results);
        const Tensor all = results[0];
        for (const std::int32_t answer : answers.at(i).as<std::int32_t>()) {
            const auto chances = all.at(rows++ % std::size_t(all.shape()[0])).as<float>();
            right += std::max_element(chances.begin(), chances.end()) - chances.begin() == answer;
        }
    }
    return 100.0 * double(right) / double(rows);
}

} // namespace

int main(int count, char **words) try {
    if (count < 2) {
        std::fprintf(stderr, "usage: %s FOLDER [EPOCHS]\n", words[0]);
        return 2;
    }
    const std::filesystem::path folder = words[1];
    const Tensors digits = load_safetensors(folder / "digits.safetensors");
    Trainer trainer(folder / "bundle");
    if (std::filesystem::exists(folder / "state.safetensors")) {
        trainer.load(folder / "state.safetensors");
        std::printf("going on after step %lld\n", static_cast<long long>(trainer.steps()));
    }
    train(trainer, digits, count > 2 ? std::atoi(words[2]) : 10);
    std::printf("accuracy: %.2f %%\n", accuracy(trainer, digits));
    trainer.save(folder / "state.safetensors");
    return 0;
} catch (const Error &error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), error.hint().c_str());
    return 1;
}
