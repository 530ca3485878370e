// Stand-ins for the classes of MAUI, Android and System.Text.Json that a sample uses: a compiler reads
// them, nobody runs them. The signatures are those of Microsoft's documentation.

using System;
using System.Collections.Generic;
using System.IO;
using System.Threading.Tasks;
using System.Windows.Input;
using Microsoft.Maui.Graphics;

namespace System.Text.Json
{
    public sealed class JsonDocument : IDisposable
    {
        public JsonElement RootElement => default(JsonElement);
        public static Task<JsonDocument> ParseAsync(Stream stream) => null;
        public void Dispose() { }
    }

    public struct JsonElement
    {
        public JsonElement GetProperty(string name) => this;
        public IEnumerable<JsonProperty> EnumerateObject() => null;
    }

    public struct JsonProperty
    {
        public string Name => null;
    }
}

namespace Microsoft.Maui.Graphics
{
    public struct PointF
    {
        public float X { get; set; }
        public float Y { get; set; }
    }

    public struct RectF
    {
        public float Width { get; set; }
        public float Height { get; set; }
    }

    public class Color
    {
    }

    public static class Colors
    {
        public static readonly Color Black, LightGray;
    }

    public interface ICanvas
    {
        Color FillColor { set; }
        void FillRectangle(float x, float y, float width, float height);
    }

    public interface IDrawable
    {
        void Draw(ICanvas canvas, RectF dirtyRect);
    }
}

namespace Microsoft.Maui.Layouts
{
    public enum FlexWrap { NoWrap, Wrap }
}

namespace Microsoft.Maui.Hosting
{
    public sealed class MauiApp
    {
        public static MauiAppBuilder CreateBuilder() => null;
    }

    public sealed class MauiAppBuilder
    {
        public MauiApp Build() => null;
    }
}

namespace Microsoft.Maui.Controls.Hosting
{
    public static class AppHostBuilderExtensions
    {
        public static Maui.Hosting.MauiAppBuilder UseMauiApp<T>(this Maui.Hosting.MauiAppBuilder builder) => builder;
    }
}

namespace Microsoft.Maui.Storage
{
    public static class FileSystem
    {
        public static string AppDataDirectory => null;
        public static Task<Stream> OpenAppPackageFileAsync(string name) => null;
    }
}

namespace Microsoft.Maui.Controls
{
    public class Application
    {
        public Page MainPage { get; set; }
    }

    public class View
    {
        public double Width => 0;
        public double HeightRequest { get; set; }
        public double Height => 0;
        public double WidthRequest { get; set; }
    }

    public class Page
    {
        protected virtual void OnAppearing() { }
    }

    public class ContentPage : Page
    {
        public View Content { get; set; }
    }

    public class Label : View
    {
        public double FontSize { get; set; }
        public string Text { get; set; }
    }

    public class Button : View
    {
        public string Text { get; set; }
        public ICommand Command { get; set; }
    }

    public class Command : ICommand
    {
        public Command(Action execute) { }
        public event EventHandler CanExecuteChanged { add { } remove { } }
        public bool CanExecute(object parameter) => true;
        public void Execute(object parameter) { }
    }

    public class TouchEventArgs : EventArgs
    {
        public PointF[] Touches => null;
    }

    public class GraphicsView : View
    {
        public IDrawable Drawable { get; set; }
        public event EventHandler<TouchEventArgs> DragInteraction { add { } remove { } }
        public void Invalidate() { }
    }

    public class Layout : View, IEnumerable<View>
    {
        public void Add(View view) { }
        public IEnumerator<View> GetEnumerator() => null;
        System.Collections.IEnumerator System.Collections.IEnumerable.GetEnumerator() => null;
    }

    public class FlexLayout : Layout
    {
        public Layouts.FlexWrap Wrap { get; set; }
    }

    public class VerticalStackLayout : Layout
    {
    }
}

namespace Android.Runtime
{
    public enum JniHandleOwnership { DoNotTransfer }
}

namespace Android.App
{
    public sealed class ApplicationAttribute : Attribute
    {
    }

    public sealed class ActivityAttribute : Attribute
    {
        public string Theme { get; set; }
        public bool MainLauncher { get; set; }
    }
}

namespace Microsoft.Maui
{
    public abstract class MauiApplication
    {
        protected MauiApplication(IntPtr handle, Android.Runtime.JniHandleOwnership ownership) { }
        protected abstract Hosting.MauiApp CreateMauiApp();
    }

    public class MauiAppCompatActivity
    {
    }
}
