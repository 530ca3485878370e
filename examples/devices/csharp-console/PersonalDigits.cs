using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Flow2Onnx;

/// <summary>A model of digits that learns the hand of the device's owner. What it was shown lies in
/// shown.safetensors, what it has learnt in state.safetensors; nothing leaves the device.</summary>
public sealed class PersonalDigits : IDisposable
{
    private const int Batch = 16, Pixels = 8 * 8, Most = 1024; // examples that are kept, the latest

    private readonly Trainer trainer;
    private readonly string shown, state;
    private readonly List<float[]> images = new List<float[]>();
    private readonly List<int> labels = new List<int>();

    /// <summary>Open the bundle in a folder; examples and state are in another, or will be.</summary>
    public PersonalDigits(string bundle, string folder)
    {
        shown = Path.Combine(folder, "shown.safetensors");
        state = Path.Combine(folder, "state.safetensors");
        trainer = new Trainer(bundle);
        if (File.Exists(state)) trainer.Load(state);
        if (!File.Exists(shown)) return;
        IReadOnlyDictionary<string, Tensor> earlier = Safetensors.Load(shown);
        labels.AddRange(earlier["labels"].Values<int>());
        images.AddRange(Enumerable.Range(0, labels.Count).Select(i => earlier["images"].Row(i).Values<float>()));
    }

    /// <summary>The steps made so far.</summary>
    public long Steps => trainer.Steps;

    /// <summary>Remember an image, 64 numbers from 0 to 1 row by row, and the digit that it shows.</summary>
    public void Collect(float[] pixels, int digit)
    {
        images.Add((float[])pixels.Clone());
        labels.Add(digit);
        int surplus = Math.Max(0, labels.Count - Most);
        images.RemoveRange(0, surplus);
        labels.RemoveRange(0, surplus);
    }

    /// <summary>Write what was collected, whole or not at all.</summary>
    public void Keep()
    {
        Safetensors.Save(shown,
            Tensor.Of(images.SelectMany(pixels => pixels).ToArray(), labels.Count, Pixels).Named("images"),
            Tensor.Of(labels.ToArray(), labels.Count).Named("labels"));
    }

    /// <summary>Learn all examples so often, and save; the mean loss of the last time, or NaN without
    /// a full batch. Trainer.RunAsync would end it early.</summary>
    public double Train(int times)
    {
        double loss = double.NaN;
        int batches = labels.Count / Batch;
        for (int time = 0; time < times && batches > 0; time++)
        {
            loss = Enumerable.Range(0, batches).Average(batch => Step(batch * Batch));
        }
        trainer.Save(state);
        return loss;
    }

    private double Step(int first)
    {
        float[] pixels = images.Skip(first).Take(Batch).SelectMany(image => image).ToArray();
        Tensor digits = Tensor.Of(labels.Skip(first).Take(Batch).ToArray(), Batch);
        return trainer.Step(Tensor.Of(pixels, Batch, 1, 8, 8), digits).Values.Single().Mean();
    }

    /// <summary>The digit that an image shows.</summary>
    public int Predict(float[] pixels)
    {
        float[] chances = trainer.Predict(Tensor.Of(pixels, 1, 1, 8, 8)).Values.Single().Values<float>();
        return Array.IndexOf(chances, chances.Max());
    }

    /// <summary>Free the model.</summary>
    public void Dispose()
    {
        trainer.Dispose();
    }
}
