using System;
using Android.App;
using Android.Runtime;
using Microsoft.Maui;
using Microsoft.Maui.Hosting;

[Application]
public sealed class MainApplication : MauiApplication
{
    public MainApplication(IntPtr handle, JniHandleOwnership ownership) : base(handle, ownership)
    {
    }

    protected override MauiApp CreateMauiApp()
    {
        return App.Create();
    }
}

[Activity(Theme = "@style/Maui.SplashTheme", MainLauncher = true)]
public sealed class MainActivity : MauiAppCompatActivity
{
}
