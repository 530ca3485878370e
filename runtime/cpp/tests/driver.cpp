/* Does what the lines of its input say and answers each with one line: ../../c/tests/driver.c has
 * the words. */
#include <flow2onnx.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace flow2onnx;

namespace {

struct Session {
    Options options;
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<Predictor> predictor;
    Tensors feeds, results;
};

double value_at(const Tensor &tensor, std::size_t index) {
    switch (tensor.dtype()) {
    case F2O_FLOAT32: return static_cast<double>(tensor.as<float>()[index]);
    case F2O_FLOAT64: return tensor.as<double>()[index];
    case F2O_INT64: return static_cast<double>(tensor.as<std::int64_t>()[index]);
    case F2O_INT32: return static_cast<double>(tensor.as<std::int32_t>()[index]);
    default: return static_cast<double>(static_cast<const unsigned char *>(tensor.data())[index]);
    }
}

void show(const Tensors &results) {
    for (const Tensor tensor : results) {
        std::printf(" %s", std::string(tensor.name()).c_str());
        const std::size_t count = tensor.bytes() / dtype_size(tensor.dtype());
        for (std::size_t i = 0; i < count && i < 16; i++) std::printf(" %.9g", value_at(tensor, i));
    }
}

std::vector<Feed> all_of(const Tensors &tensors) {
    std::vector<Feed> found;
    for (const Tensor tensor : tensors) found.emplace_back(tensor);
    return found;
}

/* Batch `index` of each feed that `specs` names. */
std::vector<Feed> batch(const Session &session, Specs specs, std::size_t index) {
    std::vector<Feed> found;
    for (const Spec spec : specs) {
        const auto all = session.feeds.find(std::string(spec.name()).c_str());
        if (!all || all->shape().empty() || index >= std::size_t(all->shape()[0])) continue;
        found.emplace_back(all->at(index));
    }
    return found;
}

using Words = std::vector<std::string>;
using Action = std::function<bool(Session &, const Words &)>; /* true: with results */

std::size_t number(const Words &words) { return std::strtoul(words.at(1).c_str(), nullptr, 10); }

template <class F> Action quietly(F act) {
    return [act](Session &session, const Words &words) {
        act(session, words);
        return false;
    };
}

template <class F> Action with_batch(F act) {
    return [act](Session &session, const Words &words) {
        const auto feeds = batch(session, session.trainer->feeds(), number(words));
        act(*session.trainer, feeds, session.results);
        return true;
    };
}

std::map<std::string, Action> settings() {
    return {
        {"open", quietly([](Session &s, const Words &w) {
             s.trainer.reset();
             s.trainer = std::make_unique<Trainer>(w.at(1), s.options);
         })},
        {"close", quietly([](Session &s, const Words &) { s.trainer.reset(); })},
        {"predictor", quietly([](Session &s, const Words &w) {
             s.predictor.reset();
             s.predictor = std::make_unique<Predictor>(w.at(1), s.options);
         })},
        {"optimize", quietly([](Session &s, const Words &w) {
             s.options.optimization = static_cast<f2o_optimization>(number(w));
         })},
        {"threads", quietly([](Session &s, const Words &w) {
             s.options.threads = std::atoi(w.at(1).c_str());
         })},
        {"finite", quietly([](Session &s, const Words &w) {
             s.options.finite_losses = number(w) != 0;
         })},
        {"ort", quietly([](Session &s, const Words &w) { s.options.ort_format = number(w) != 0; })},
        {"library", quietly([](Session &s, const Words &w) { s.options.library = w.at(1); })},
        {"feeds", quietly([](Session &s, const Words &w) { load_safetensors(w.at(1), s.feeds); })},
        {"tensors", [](Session &s, const Words &w) {
             load_safetensors(w.at(1), s.results);
             return true;
         }},
        {"copy", quietly([](Session &s, const Words &w) {
             load_safetensors(w.at(1), s.results);
             save_safetensors(w.at(2), all_of(s.results));
         })},
        {"run", [](Session &s, const Words &w) {
             const Tensors given = load_safetensors(w.at(1));
             const auto feeds = all_of(given);
             s.predictor->run(feeds.data(), feeds.size(), s.results);
             return true;
         }},
    };
}

std::map<std::string, Action> training() {
    using List = std::vector<Feed>;
    return {
        {"step", with_batch([](Trainer &t, const List &feeds, Tensors &results) {
             t.step(feeds.data(), feeds.size(), results);
         })},
        {"evaluate", with_batch([](Trainer &t, const List &feeds, Tensors &results) {
             t.evaluate(feeds.data(), feeds.size(), results);
         })},
        {"accumulate", with_batch([](Trainer &t, const List &feeds, Tensors &results) {
             t.accumulate(feeds.data(), feeds.size(), results);
         })},
        {"predict", [](Session &s, const Words &w) {
             const auto feeds = batch(s, s.predictor->feeds(), number(w));
             s.trainer->predict(nullptr, feeds.data(), feeds.size(), s.results);
             return true;
         }},
        {"update", quietly([](Session &s, const Words &) { s.trainer->update(); })},
        {"rate", quietly([](Session &s, const Words &w) {
             s.trainer->set_rate(std::atof(w.at(1).c_str()));
         })},
        {"schedule", quietly([](Session &s, const Words &) { s.trainer->use_schedule(); })},
        {"freeze", quietly([](Session &s, const Words &w) {
             s.trainer->freeze({w.begin() + 1, w.end()});
         })},
        {"stop", quietly([](Session &s, const Words &w) {
             s.trainer->stop(number(w) != 0);
             if (s.predictor) s.predictor->stop(number(w) != 0);
         })},
        {"save", quietly([](Session &s, const Words &w) { s.trainer->save(w.at(1)); })},
        {"load", quietly([](Session &s, const Words &w) { s.trainer->load(w.at(1)); })},
        {"adapter", quietly([](Session &s, const Words &w) { s.trainer->export_adapter(w.at(1)); })},
        {"from", quietly([](Session &s, const Words &w) { s.trainer->load_adapter(w.at(1)); })},
        {"export", quietly([](Session &s, const Words &w) { s.trainer->export_predict(w.at(1)); })},
        {"state", quietly([](Session &s, const Words &w) {
             s.trainer->state().read(s.results);
             save_safetensors(w.at(1), all_of(s.results));
         })},
        {"put", quietly([](Session &s, const Words &w) {
             load_safetensors(w.at(1), s.results);
             s.trainer->state().write(all_of(s.results));
         })},
        {"replace", quietly([](Session &s, const Words &w) {
             load_safetensors(w.at(1), s.results);
             s.trainer->state().replace(all_of(s.results));
         })},
    };
}

/* Nanoseconds of one step on the first batch. */
double time_of_step(Session &session, std::size_t steps) {
    using Clock = std::chrono::steady_clock;
    const auto feeds = batch(session, session.trainer->feeds(), 0);
    const auto start = Clock::now();
    for (std::size_t i = 0; i < steps; i++) {
        session.trainer->step(feeds.data(), feeds.size(), session.results);
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / double(steps);
}

void answer(Session &session, const Action &action, const Words &words) {
    try {
        const bool with_results = action(session, words);
        std::printf("ok");
        if (with_results) show(session.results);
        std::printf("\n");
    } catch (const Error &error) {
        std::printf("error %d %s|  %s\n", static_cast<int>(error.status()), error.what(),
                    error.hint().c_str());
    }
}

} // namespace

int main() {
    Session session;
    auto actions = settings();
    actions.merge(training());
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream stream(line);
        Words words;
        for (std::string word; stream >> word;) words.push_back(word);
        if (words.empty()) continue;
        const auto action = actions.find(words[0]);
        if (words[0] == "steps" && session.trainer) {
            std::printf("ok %lld %.9g %lld\n", static_cast<long long>(session.trainer->steps()),
                        session.trainer->rate().value_or(-1),
                        static_cast<long long>(session.trainer->accumulated()));
        } else if (words[0] == "time" && session.trainer) {
            std::printf("ok %.0f\n", time_of_step(session, number(words)));
        } else if (action == actions.end() || (training().count(words[0]) && !session.trainer)) {
            std::printf("error 99 %s is unknown, or nothing is open\n", words[0].c_str());
        } else {
            answer(session, action->second, words);
        }
        std::fflush(stdout);
    }
    return 0;
}
