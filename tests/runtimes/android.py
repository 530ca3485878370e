"""Stand-ins for the classes of Android that the samples use: compilers read them, nobody runs them.

The signatures are those of Android's and androidx's documentation.
"""

from pathlib import Path

__all__ = ["write"]

# Each class with its body; those that it stands inside of are in its name.
_CLASSES = {
    "android.app.Activity": """public class Activity extends android.content.Context {
        protected void onCreate(android.os.Bundle saved) {}
        protected void onResume() {}
        protected void onDestroy() {}
        public void setContentView(android.view.View view) {}
        public final String getString(int id, Object... given) { return ""; } }""",
    "android.content.Context": """public abstract class Context {
        public java.io.File getFilesDir() { return null; }
        public android.content.res.AssetManager getAssets() { return null; } }""",
    "android.content.res.AssetManager": """public final class AssetManager {
        public String[] list(String path) throws java.io.IOException { return null; }
        public java.io.InputStream open(String name) throws java.io.IOException {
            return null; } }""",
    "android.graphics.Canvas": """public class Canvas {
        public void drawRect(float l, float t, float r, float b, Paint paint) {} }""",
    "android.graphics.Paint": "public class Paint { public void setColor(int color) {} }",
    "android.os.Bundle": "public final class Bundle {}",
    "android.view.MotionEvent": """public final class MotionEvent {
        public float getX() { return 0; } public float getY() { return 0; } }""",
    "android.view.View": """public class View {
        public interface OnClickListener { void onClick(View view); }
        public View(android.content.Context context) {}
        public void setOnClickListener(OnClickListener listener) {}
        public boolean onTouchEvent(MotionEvent event) { return false; }
        protected void onDraw(android.graphics.Canvas canvas) {}
        public void invalidate() {}
        public final int getWidth() { return 0; } public final int getHeight() { return 0; } }""",
    "android.widget.TextView": """public class TextView extends android.view.View {
        public TextView(android.content.Context context) { super(context); }
        public final void setText(CharSequence text) {}
        public void setTextSize(float size) {} }""",
    "android.widget.Button": """public class Button extends TextView {
        public Button(android.content.Context context) { super(context); } }""",
    "android.widget.LinearLayout": """public class LinearLayout extends android.view.View {
        public static final int VERTICAL = 1;
        public static class LayoutParams {
            public LayoutParams(int width, int height, float weight) {} }
        public LinearLayout(android.content.Context context) { super(context); }
        public void setOrientation(int orientation) {}
        public void addView(android.view.View view) {}
        public void addView(android.view.View view, LayoutParams how) {} }""",
    "androidx.annotation.NonNull": "public @interface NonNull {}",
    "androidx.work.Constraints": """public final class Constraints {
        public static final class Builder {
            public Builder setRequiresCharging(boolean asked) { return this; }
            public Builder setRequiresDeviceIdle(boolean asked) { return this; }
            public Constraints build() { return null; } } }""",
    "androidx.work.ExistingPeriodicWorkPolicy": "public enum ExistingPeriodicWorkPolicy { KEEP }",
    "androidx.work.PeriodicWorkRequest": """public final class PeriodicWorkRequest {
        public static final class Builder {
            public Builder(Class<? extends ListenableWorker> worker, long every,
                           java.util.concurrent.TimeUnit unit) {}
            public Builder setConstraints(Constraints constraints) { return this; }
            public PeriodicWorkRequest build() { return null; } } }""",
    "androidx.work.WorkManager": """public abstract class WorkManager {
        public static WorkManager getInstance(android.content.Context context) { return null; }
        public abstract Object enqueueUniquePeriodicWork(String name,
            ExistingPeriodicWorkPolicy policy, PeriodicWorkRequest request); }""",
    "androidx.work.WorkerParameters": "public final class WorkerParameters {}",
    "androidx.work.ListenableWorker": """public abstract class ListenableWorker {
        public abstract static class Result {
            public static Result success() { return null; }
            public static Result retry() { return null; } }
        public final android.content.Context getApplicationContext() { return null; }
        public final boolean isStopped() { return false; }
        public void onStopped() {} }""",
    "androidx.work.Worker": """public abstract class Worker extends ListenableWorker {
        public Worker(android.content.Context context, WorkerParameters parameters) {}
        public abstract Result doWork(); }""",
    "flow2onnx.digits.R": """final class R {
        static final class string { static final int steps = 1; } }""",
}


def write(folder: Path) -> list[Path]:
    """The files of the stand-ins, written into a folder."""
    files = []
    for name, body in _CLASSES.items():
        package, _, own = name.rpartition(".")
        path = folder / package.replace(".", "/") / f"{own}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"package {package};\n\n{body}\n")
        files.append(path)
    return files
