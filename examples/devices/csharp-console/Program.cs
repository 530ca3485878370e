using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using Flow2Onnx;

/// <summary>Learns the digits of hand.safetensors: digits FOLDER.</summary>
internal static class Program
{
    private static void Main(string[] arguments)
    {
        CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
        string folder = arguments[0];
        IReadOnlyDictionary<string, Tensor> hand = Safetensors.Load(Path.Combine(folder, "hand.safetensors"));
        using (var digits = new PersonalDigits(Path.Combine(folder, "bundle"), folder))
        {
            Console.WriteLine("after {0} steps {1:F1} %", digits.Steps, Right(digits, hand));
            float[][] images = Rows(hand["images"]);
            int[] labels = hand["labels"].Values<int>();
            for (int i = 0; i < labels.Length; i++) digits.Collect(images[i], labels[i]);
            digits.Keep();
            Console.WriteLine("loss {0:F4}", digits.Train(8));
            Console.WriteLine("after {0} steps {1:F1} %", digits.Steps, Right(digits, hand));
        }
    }

    private static float[][] Rows(Tensor images)
    {
        float[] all = images.Values<float>();
        return Enumerable.Range(0, all.Length / 64).Select(i => all.Skip(64 * i).Take(64).ToArray()).ToArray();
    }

    private static double Right(PersonalDigits digits, IReadOnlyDictionary<string, Tensor> hand)
    {
        int[] answers = hand["answers"].Values<int>();
        IEnumerable<int> given = Rows(hand["tests"]).Select(digits.Predict);
        return 100.0 * given.Zip(answers, (a, b) => a == b).Count(same => same) / answers.Length;
    }
}
