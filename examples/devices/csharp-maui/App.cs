using System;
using System.IO;
using System.Linq;
using System.Text.Json;
using System.Threading.Tasks;
using Microsoft.Maui.Controls;
using Microsoft.Maui.Controls.Hosting;
using Microsoft.Maui.Graphics;
using Microsoft.Maui.Hosting;
using Microsoft.Maui.Storage;

/// <summary>One draws a digit with a finger, sees what it is taken for, and says what it is.</summary>
public sealed class App : Application
{
    public App()
    {
        MainPage = new DigitsPage();
    }

    public static MauiApp Create()
    {
        return MauiApp.CreateBuilder().UseMauiApp<App>().Build();
    }
}

public sealed class DigitsPage : ContentPage, IDrawable
{
    private readonly float[] pixels = new float[64];
    private readonly Label answer = new Label { FontSize = 24 };
    private readonly GraphicsView pad;
    private PersonalDigits digits;

    public DigitsPage()
    {
        pad = new GraphicsView { Drawable = this, HeightRequest = 320, WidthRequest = 320 };
        pad.DragInteraction += (sender, touch) => Touch(touch.Touches.First());
        var buttons = new FlexLayout { Wrap = Microsoft.Maui.Layouts.FlexWrap.Wrap };
        foreach (int digit in Enumerable.Range(0, 10))
        {
            buttons.Add(new Button { Text = digit.ToString(), Command = new Command(() => Collect(digit)) });
        }
        var train = new Button { Text = "learn", Command = new Command(async () => await Train()) };
        Content = new VerticalStackLayout { answer, pad, buttons, train };
    }

    protected override async void OnAppearing()
    {
        base.OnAppearing();
        if (digits == null) digits = new PersonalDigits(await Unpacked(), FileSystem.AppDataDirectory);
        answer.Text = "learnt in " + digits.Steps + " steps: draw a digit";
    }

    /// <summary>The bundle among the assets as files; the manifest comes last.</summary>
    private static async Task<string> Unpacked()
    {
        string folder = Path.Combine(FileSystem.AppDataDirectory, "bundle");
        if (File.Exists(Path.Combine(folder, "manifest.json"))) return folder;
        Directory.CreateDirectory(folder);
        foreach (string name in await Files())
        {
            using (Stream from = await FileSystem.OpenAppPackageFileAsync("bundle/" + name))
            using (FileStream to = File.Create(Path.Combine(folder, name + ".part")))
            {
                await from.CopyToAsync(to);
            }
            File.Delete(Path.Combine(folder, name));
            File.Move(Path.Combine(folder, name + ".part"), Path.Combine(folder, name));
        }
        return folder;
    }

    /// <summary>The files that the manifest lists, and itself behind them.</summary>
    private static async Task<string[]> Files()
    {
        using (Stream manifest = await FileSystem.OpenAppPackageFileAsync("bundle/manifest.json"))
        using (JsonDocument content = await JsonDocument.ParseAsync(manifest))
        {
            return content.RootElement.GetProperty("files").EnumerateObject()
                .Select(file => file.Name).Append("manifest.json").ToArray();
        }
    }

    private void Touch(PointF place)
    {
        int column = (int)(place.X * 8 / pad.Width), row = (int)(place.Y * 8 / pad.Height);
        if (column < 0 || column > 7 || row < 0 || row > 7 || digits == null) return;
        pixels[8 * row + column] = 1;
        answer.Text = digits.Predict(pixels).ToString();
        pad.Invalidate();
    }

    private void Collect(int digit)
    {
        digits.Collect(pixels, digit);
        digits.Keep();
        Array.Clear(pixels, 0, pixels.Length);
        pad.Invalidate();
    }

    private async Task Train()
    {
        double loss = await Task.Run(() => digits.Train(10));
        answer.Text = double.IsNaN(loss) ? "show 16 digits first" : "loss " + loss.ToString("F3");
    }

    public void Draw(ICanvas canvas, RectF area)
    {
        for (int i = 0; i < 64; i++)
        {
            canvas.FillColor = pixels[i] > 0 ? Colors.Black : Colors.LightGray;
            canvas.FillRectangle(i % 8 * area.Width / 8, i / 8 * area.Height / 8, area.Width / 8 - 1, area.Height / 8 - 1);
        }
    }
}
