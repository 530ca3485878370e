using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Flow2Onnx;

/// <summary>What C# has of its own: arrays, tasks, what was disposed of. Its arguments are the
/// conformance bundle mlp, and a copy whose labels have a range.</summary>
internal static class Checks
{
    private static readonly Options One = new Options { Threads = 1 };
    private static readonly float[] Pixels =
        Enumerable.Range(0, 8 * 20).Select(i => i * i % 19 / 19f).ToArray();
    private static readonly int[] Labels = Enumerable.Range(0, 8).ToArray();
    private static string bundle;
    private static int checks;

    private static void Main(string[] arguments)
    {
        bundle = arguments[0];
        Arrays();
        Types();
        Refusals();
        Specs(arguments[1]);
        Threads();
        Cancelled().Wait();
        Garbage();
        Disposed();
        Console.WriteLine(checks + " checks");
    }

    private static void Check(bool holds, string what)
    {
        checks++;
        if (!holds) throw new InvalidOperationException("not so: " + what);
    }

    private static T Refused<T>(Action call) where T : Exception
    {
        checks++;
        try
        {
            call();
        }
        catch (T error)
        {
            return error;
        }
        throw new InvalidOperationException("no " + typeof(T).Name);
    }

    private static Tensor Only(IReadOnlyDictionary<string, Tensor> results)
    {
        return results.Values.Single();
    }

    private static void Arrays()
    {
        using (var trainer = new Trainer(bundle, One))
        {
            var array = (float[])Pixels.Clone();
            Tensor images = Tensor.Of(array, 8, 20), labels = Tensor.Of(Labels, 8);
            double wanted = Only(trainer.Evaluate(images, labels)).Mean();
            array[0] = 100;
            Check(Only(trainer.Evaluate(images, labels)).Mean() != wanted, "the array itself is read");
            array[0] = Pixels[0];
            Tensor stacked = Tensor.Of(new float[160].Concat(Pixels).ToArray(), 2, 8, 20);
            Check(Only(trainer.Evaluate(stacked.Row(1), labels)).Mean() == wanted, "a row of an array");
            Check(Only(trainer.Evaluate(labels.Named("labels"), images.Named("images"))).Mean() == wanted, "by name");
        }
        Check(ReferenceEquals(Tensor.Of(Labels, 8).Values<int>(), Labels), "the array");
        Check(Tensor.Of(Labels, 2, 4).Row(1).Values<int>().SequenceEqual(new[] { 4, 5, 6, 7 }), "a part");
        Check(Tensor.Of(new long[] { 7 }).Count == 1, "a single number");
        Check(Tensor.Of(new double[0], 0, 3).Count == 0, "nothing");
        Check(Tensor.Of(new[] { true, false }, 2).ToDoubles()[0] == 1, "bool");
    }

    private static void Types()
    {
        var halves = new ushort[] { 0x3c00, 0xc000, 0x0001, 0x7c00, 0x8000 };
        double[] found = Tensor.Of(DType.Float16, halves, 5).ToDoubles();
        Check(found.SequenceEqual(new[] { 1, -2, Math.Pow(2, -24), double.PositiveInfinity, -0.0 }), "float16");
        found = Tensor.Of(DType.BFloat16, new ushort[] { 0x3f80, 0xc000, 0x7f80 }, 3).ToDoubles();
        Check(found.SequenceEqual(new[] { 1, -2, double.PositiveInfinity }), "bfloat16");
        Check(Tensor.Of(DType.UInt64, new[] { ulong.MaxValue }, 1).ToDoubles()[0] == Math.Pow(2, 64), "uint64");
        Check(Tensor.Of(DType.Int8, new sbyte[] { -1 }, 1).ToDoubles()[0] == -1, "int8");
    }

    private static void Refusals()
    {
        Check(Refused<BundleException>(() => new Trainer("none")).Hint.Length > 0, "a hint");
        Refused<OptionsException>(() => new Trainer(bundle, new Options { Threads = -1 }));
        Refused<OptionsException>(() => new Trainer("a\0b"));
        Refused<OptionsException>(() => new Trainer("\ud83d"));
        Refused<ArgumentNullException>(() => new Trainer(null));
        Refused<FeedException>(() => Tensor.Of(Pixels, 8, 21));
        Refused<FeedException>(() => Tensor.Of(Pixels, -8, -20));
        Refused<FeedException>(() => Tensor.Of(DType.Float32, Labels, 8));
        Refused<MemoryException>(() => Tensor.Of(Pixels, 1L << 62, 1L << 62));
        Refused<OptionsException>(() => Tensor.Of((DType)99, Pixels, 8, 20));
        Refused<ArgumentOutOfRangeException>(() => Tensor.Of(Labels, 8).Row(8));
        Refused<ArgumentOutOfRangeException>(() => Tensor.Of(Labels, 8).Row(0).Row(0));
        Refused<InvalidOperationException>(() => Tensor.Of(Labels, 8).Values<float>());
        using (var trainer = new Trainer(bundle, One))
        {
            Refused<ArgumentNullException>(() => trainer.Step(Tensor.Of(Pixels, 8, 20), null));
            Refused<FeedException>(() => trainer.Step());
            Refused<StateException>(() => trainer.State.Read("none"));
            Refused<StateException>(() => trainer.State.Write(Tensor.Of(Labels, 8)));
            Refused<StateException>(() => Safetensors.Save("none.safetensors", Tensor.Of(Labels, 8)));
            Check(trainer.Steps == 0 && trainer.Accumulated == 0, "nothing was done");
            Check(trainer.State.Read("hidden-bias").Count == 1, "one tensor by its name");
            trainer.Freeze("hidden-weight");
            Check(trainer.IsFrozen("hidden-weight") && !trainer.IsFrozen("none"), "frozen");
        }
    }

    private static void Specs(string ranged)
    {
        using (var trainer = new Trainer(ranged, One))
        using (var predictor = new Predictor(bundle, null, One))
        {
            Spec images = trainer.Feeds[0], labels = trainer.Feeds[1];
            Check(images.Name == "images" && images.DType == DType.Float32, "a feed");
            Check(images.Shape.SequenceEqual(new long[] { 8, 20 }), "its shape");
            Check(images.Symbols[0] == null && images.Role == null && images.Range == null, "no more");
            Check(labels.Range.Least == 0 && labels.Range.Below == 10, "the ends of a range");
            Check(labels.Range.Ignored == -1 && labels.Range.Layer == "the loss", "the rest of it");
            Check(trainer.Results[0].Name == "out/0", "a result");
            Check(predictor.Feeds.Count == 1 && predictor.Results.Count == 1, "of a model");
            Check(trainer.State.Specs.Count(spec => spec.Role == "slot" && spec.Of != null) == 8,
                  "momentum and sum of two weights and two biases");
        }
    }

    private static void Threads()
    {
        Tensor images = Tensor.Of(Pixels, 8, 20), labels = Tensor.Of(Labels, 8);
        using (var predictor = new Predictor(bundle, null, One))
        using (var trainer = new Trainer(bundle, One))
        {
            double[] wanted = Only(predictor.Run(images)).ToDoubles();
            Task<bool>[] answers = Enumerable.Range(0, 4).Select(_ => Task.Run(() =>
            {
                bool same = true;
                for (int i = 0; i < 50; i++)
                {
                    same &= Only(predictor.Run(images)).ToDoubles().SequenceEqual(wanted);
                    trainer.Step(images, labels);
                    trainer.Stop(false);
                }
                return same;
            })).ToArray();
            Task.WaitAll(answers);
            Check(answers.All(answer => answer.Result), "the same in each thread");
            Check(trainer.Steps == 200, "each step was made once");
            predictor.Stop(true);
            Refused<StoppedException>(() => predictor.Run(images));
            predictor.Stop(false);
            Check(Only(predictor.Run(images)).ToDoubles().SequenceEqual(wanted), "again");
        }
    }

    /// <summary>Training that is cancelled ends, and the trainer goes on afterwards.</summary>
    private static async Task Cancelled()
    {
        Tensor images = Tensor.Of(Pixels, 8, 20), labels = Tensor.Of(Labels, 8);
        using (var trainer = new Trainer(bundle, One))
        using (var begun = new ManualResetEventSlim())
        using (var source = new CancellationTokenSource())
        {
            Task<int> endless = trainer.RunAsync<int>(each =>
            {
                while (true)
                {
                    each.Step(images, labels);
                    begun.Set();
                }
            }, source.Token);
            begun.Wait();
            source.Cancel();
            bool ended = false;
            try
            {
                await endless;
            }
            catch (OperationCanceledException)
            {
                ended = true;
            }
            Check(ended, "cancelled");
            long steps = trainer.Steps;
            Check(await trainer.RunAsync(each => each.Step(images, labels).Count, CancellationToken.None) == 1, "again");
            Check(trainer.Steps == steps + 1 && steps > 0, "one step more");
        }
    }

    private static void Garbage()
    {
        for (int i = 0; i < 20; i++) Forgotten();
        GC.Collect();
        GC.WaitForPendingFinalizers();
        Check(true, "what was forgotten is freed");
    }

    private static void Forgotten()
    {
        var trainer = new Trainer(bundle, One);
        Only(trainer.Evaluate(Tensor.Of(Pixels, 8, 20), Tensor.Of(Labels, 8)));
        GC.KeepAlive(new Predictor(bundle, null, One));
    }

    private static void Disposed()
    {
        var trainer = new Trainer(bundle, One);
        trainer.Dispose();
        trainer.Dispose();
        Refused<ObjectDisposedException>(() => trainer.Step(Tensor.Of(Pixels, 8, 20)));
        Refused<ObjectDisposedException>(() => trainer.State.Read());
        Refused<ObjectDisposedException>(() => trainer.Stop(true));
        var predictor = new Predictor(bundle, null, One);
        predictor.Dispose();
        predictor.Dispose();
        Refused<ObjectDisposedException>(() => predictor.Run(Tensor.Of(Pixels, 8, 20)));
    }
}
