/* What the header promises to the compiler and to a program: types BUNDLE. */
#include <flow2onnx.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace flow2onnx;

static_assert(!std::is_copy_constructible_v<Trainer> && !std::is_copy_assignable_v<Trainer>);
static_assert(!std::is_copy_constructible_v<Predictor> && !std::is_copy_constructible_v<Tensors>);
static_assert(std::is_nothrow_move_constructible_v<Trainer>);
static_assert(std::is_nothrow_move_constructible_v<Predictor>);
static_assert(std::is_nothrow_move_constructible_v<Tensors>);
static_assert(std::is_base_of_v<Error, BundleError> && std::is_base_of_v<std::exception, Error>);
static_assert(dtype_of<float> == F2O_FLOAT32 && dtype_of<bool> == F2O_BOOL);
static_assert(dtype_of<long long> == F2O_INT64 && dtype_of<long> == F2O_INT64);
static_assert(dtype_of<unsigned char> == F2O_UINT8 && dtype_of<const double> == F2O_FLOAT64);
static_assert(dtype_of<Float16> == F2O_FLOAT16 && dtype_of<BFloat16> == F2O_BFLOAT16);
static_assert(sizeof(Float16) == 2);

static int done;

static void check(bool right, const char *what) {
    done++;
    if (right) return;
    std::printf("wrong: %s\n", what);
    std::exit(1);
}

/* True if `act` throws an E that says `words` and has a hint. */
template <class E, class F> static bool refused(const char *words, F act) {
    try {
        act();
    } catch (const E &error) {
        return std::string(error.what()).find(words) != std::string::npos && !error.hint().empty();
    }
    return false;
}

static const std::vector<float> images(8 * 20, 0.5f);
static const std::array<std::int32_t, 8> labels = {0, 1, 2, 3, 4, 5, 6, 7};

static void check_feeds() {
    check(refused<FeedError>("images: the sizes", [] { Feed("images", images, {8, 19}); }), "size");
    check(refused<FeedError>("a feed: the sizes", [] { Feed(images, {-8, -20}); }), "below 0");
    check(refused<FeedError>("the sizes", [] {
              Feed(images, {INT64_MAX, INT64_MAX, 4});
          }), "too many to count");
    check(refused<FeedError>("9 axes", [] { Feed(labels, {1, 1, 1, 1, 1, 1, 1, 1, 8}); }), "rank");
    const std::vector<float> none;
    check(Feed(none, {0, 1000}).raw().rank == 2, "an empty array has a shape");
    const double one[] = {2.5};
    check(Feed("x", one, {}).raw().rank == 0, "a scalar");
    const Feed feed("images", images, {8, 20});
    const Feed copy = feed;
    check(copy.raw().shape != feed.raw().shape && copy.raw().shape[1] == 20, "a copy is whole");
}

static void check_tensors(Trainer &trainer) {
    Tensors results = trainer.step({{"labels", labels, {8}}, {"images", images, {8, 20}}});
    check(results.size() == 1 && results[0].name() == "out/0", "results by name");
    check(refused<StateError>("read as int32", [&] { results["out/0"].as<std::int32_t>(); }), "as");
    check(refused<StateError>("no tensor none", [&] { results["none"]; }), "none");
    check(refused<StateError>("no tensor 1 of 1", [&] { results[1]; }), "1");
    check(refused<StateError>("no element 8", [&] { results["out/0"].at(8); }), "at");
    check(!results.find("none"), "find");
    Tensors moved = std::move(results);
    check(results.empty() && moved.size() == 1, "moved");
    moved = Tensors();
    std::size_t tensors = 0;
    for (const Tensor tensor : trainer.state().read()) tensors += !tensor.name().empty();
    check(tensors == trainer.state().specs().size(), "the state, all");
    check(trainer.state().read({"hidden-bias"}).size() == 1, "the state, one");
    check(trainer.state().read(std::vector<std::string>{}).empty(), "the state, none");
    check(refused<StateError>("nothing", [&] { trainer.state().read({"nothing"}); }), "no name");
    const Spec first = trainer.feeds()[0];
    check(first.name() == "images" && first.shape()[1] == 20 && first.symbol(0).empty(), "specs");
    check(trainer.feeds()[0].range() == nullptr, "no range of what is not whole");
}

static void check_trainer(const char *bundle) {
    check(refused<BundleError>("none", [] { Trainer("/none"); }), "no bundle");
    Options odd;
    odd.threads = -1;
    check(refused<OptionsError>("threads is -1", [&] { Trainer(bundle, odd); }), "options");
    Trainer first(bundle);
    Trainer trainer = std::move(first);
    check_tensors(trainer);
    check(trainer.steps() == 1 && !trainer.rate(), "steps");
    trainer.set_rate(0.5);
    check(trainer.rate() == 0.5, "rate");
    trainer.freeze({"hidden-weight"});
    check(trainer.is_frozen("hidden-weight-momentum") && !trainer.is_frozen("x"), "frozen");
    check(refused<StateError>("no variable", [&] { trainer.freeze({"x"}); }), "freeze");
    const std::vector<Feed> many(20, Feed("labels", labels, {8}));
    check(refused<FeedError>("takes 2 feeds, got 20", [&] {
              Tensors results;
              trainer.step(many.data(), many.size(), results);
          }), "more feeds than the stack has room for");
}

/* A thread that steps until another stops it. */
static void check_stop(const char *bundle) {
    Trainer trainer(bundle);
    bool stopped = false;
    std::thread steps([&] {
        stopped = refused<StoppedError>("the state is as it was", [&] {
            Tensors results;
            for (;;) trainer.step({{images, {8, 20}}, {labels, {8}}}, results);
        });
    });
    trainer.stop();
    steps.join();
    trainer.stop(false);
    const std::int64_t before = trainer.steps();
    trainer.step({{images, {8, 20}}, {labels, {8}}});
    check(stopped && trainer.steps() == before + 1, "stopped");
}

int main(int count, char **words) {
    if (count != 2) return 2;
    check_feeds();
    check_trainer(words[1]);
    check_stop(words[1]);
    std::printf("%d are as it should be\n", done);
    return 0;
}
