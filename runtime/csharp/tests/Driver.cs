using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text;
using Flow2Onnx;

/// <summary>Does what lines of text say, and answers each as the driver of the C runtime does.</summary>
internal sealed class Driver
{
    private readonly Options options = new Options();
    private IReadOnlyDictionary<string, Tensor> feeds;
    private Trainer trainer;
    private Predictor predictor;

    private static void Main()
    {
        var encoding = new UTF8Encoding(false);
        var lines = new StreamReader(Console.OpenStandardInput(), encoding);
        var answers = new StreamWriter(Console.OpenStandardOutput(), encoding) { AutoFlush = true, NewLine = "\n" };
        var driver = new Driver();
        for (string line = lines.ReadLine(); line != null; line = lines.ReadLine())
        {
            answers.WriteLine(driver.Answer(line.Trim().Split(' ')));
        }
        driver.trainer?.Dispose();
        driver.predictor?.Dispose();
    }

    private string Answer(string[] words)
    {
        try
        {
            return Act(words[0], words.Length > 1 ? words[1] : "", words);
        }
        catch (Flow2OnnxException error)
        {
            if (!error.Message.EndsWith(error.Hint, StringComparison.Ordinal)) return "error 99 no hint";
            return "error " + (int)error.Status + " " + error.Message.Replace('\n', '|');
        }
    }

    private string Act(string word, string first, string[] words)
    {
        switch (word)
        {
            case "open":
                var next = new Trainer(first, options);
                trainer?.Dispose();
                trainer = next;
                return "ok";
            case "predictor":
                var opened = new Predictor(first, null, options);
                predictor?.Dispose();
                predictor = opened;
                return "ok";
            case "feeds": feeds = Safetensors.Load(first); return "ok";
            case "tensors": return Shown(Safetensors.Load(first));
            case "copy": Safetensors.Save(words[2], All(Safetensors.Load(first))); return "ok";
            case "run": return Shown(predictor.Run(All(Safetensors.Load(first))));
            case "step": return Shown(trainer.Step(Batch(trainer.Feeds, first)));
            case "evaluate": return Shown(trainer.Evaluate(Batch(trainer.Feeds, first)));
            case "accumulate": return Shown(trainer.Accumulate(Batch(trainer.Feeds, first)));
            case "predict": return Shown(trainer.Predict(Batch(predictor.Feeds, first)));
            case "steps":
                return string.Format(CultureInfo.InvariantCulture, "ok {0} {1:R} {2}",
                                     trainer.Steps, trainer.Rate, trainer.Accumulated);
            default:
                if (!Set(word, first)) Change(word, first, words);
                return "ok";
        }
    }

    private bool Set(string word, string first)
    {
        switch (word)
        {
            case "optimize": options.Optimization = (Optimization)int.Parse(first); return true;
            case "threads": options.Threads = int.Parse(first); return true;
            case "finite": options.FiniteLosses = first == "1"; return true;
            case "ort": options.OrtFormat = first == "1"; return true;
            case "library": options.Library = first; return true;
            default: return false;
        }
    }

    private void Change(string word, string first, string[] words)
    {
        switch (word)
        {
            case "stop": trainer.Stop(first == "1"); predictor?.Stop(first == "1"); break;
            case "update": trainer.Update(); break;
            case "rate": trainer.Rate = Number(first); break;
            case "schedule": trainer.UseSchedule(); break;
            case "freeze": trainer.Freeze(words.Skip(1).ToArray()); break;
            case "save": trainer.Save(first); break;
            case "load": trainer.Load(first); break;
            case "adapter": trainer.ExportAdapter(first); break;
            case "from": trainer.LoadAdapter(first); break;
            case "export": trainer.ExportPredict(first); break;
            case "state": Safetensors.Save(first, All(trainer.State.Read())); break;
            case "put": trainer.State.Write(All(Safetensors.Load(first))); break;
            case "replace": trainer.State.Replace(All(Safetensors.Load(first))); break;
            case "close": trainer.Dispose(); trainer = null; break;
            default: throw new ArgumentException(word);
        }
    }

    private static double Number(string word)
    {
        return word == "inf" ? double.PositiveInfinity
            : word == "nan" ? double.NaN : double.Parse(word, CultureInfo.InvariantCulture);
    }

    private Tensor[] Batch(IReadOnlyList<Spec> specs, string index)
    {
        if (feeds == null) return new Tensor[0];
        return specs.Where(spec => feeds.ContainsKey(spec.Name))
            .Select(spec => feeds[spec.Name].Row(long.Parse(index))).ToArray();
    }

    private static Tensor[] All(IReadOnlyDictionary<string, Tensor> tensors)
    {
        return tensors.Values.ToArray();
    }

    private static string Shown(IReadOnlyDictionary<string, Tensor> results)
    {
        var text = new StringBuilder("ok");
        foreach (KeyValuePair<string, Tensor> result in results)
        {
            text.Append(' ').Append(result.Key);
            foreach (double number in result.Value.ToDoubles().Take(16))
            {
                text.Append(' ').Append(number.ToString("R", CultureInfo.InvariantCulture));
            }
        }
        return text.ToString();
    }
}
