package flow2onnx.digits;

import android.app.Activity;
import android.content.Context;
import android.graphics.Canvas;
import android.graphics.Paint;
import android.os.Bundle;
import android.view.MotionEvent;
import android.view.View;
import android.widget.Button;
import android.widget.LinearLayout;
import android.widget.TextView;
import java.io.IOException;

/** One draws a digit with a finger, sees what it is taken for, and says what it is. */
public final class MainActivity extends Activity {
    private static final int SIZE = 8;
    private final float[] pixels = new float[SIZE * SIZE];
    private PersonalDigits digits;
    private TextView answer;

    @Override
    protected void onCreate(Bundle saved) {
        super.onCreate(saved);
        try {
            digits = Bundles.open(this);
        } catch (IOException error) {
            throw new IllegalStateException("the bundle cannot be unpacked", error);
        }
        TrainWorker.schedule(this);
        answer = new TextView(this);
        answer.setTextSize(24);
        LinearLayout page = new LinearLayout(this);
        page.setOrientation(LinearLayout.VERTICAL);
        View pad = new Pad(this);
        page.addView(answer);
        page.addView(pad, new LinearLayout.LayoutParams(-1, 0, 1));
        LinearLayout row = new LinearLayout(this);
        for (int digit = 0; digit < 10; digit++) {
            row.addView(button(digit, pad), new LinearLayout.LayoutParams(0, -2, 1));
        }
        page.addView(row);
        setContentView(page);
    }

    /** A button by which one says what was drawn. */
    private Button button(final int digit, final View pad) {
        Button button = new Button(this);
        button.setText(String.valueOf(digit));
        button.setOnClickListener(
                view -> {
                    digits.collect(pixels, digit);
                    java.util.Arrays.fill(pixels, 0);
                    pad.invalidate();
                });
        return button;
    }

    @Override
    protected void onResume() {
        super.onResume();
        digits.reload();
        answer.setText(getString(R.string.steps, digits.steps()));
    }

    @Override
    protected void onDestroy() {
        digits.close();
        super.onDestroy();
    }

    /** Eight by eight squares to draw on. */
    private final class Pad extends View {
        private final Paint paint = new Paint();

        Pad(Context context) {
            super(context);
        }

        @Override
        public boolean onTouchEvent(MotionEvent event) {
            int column = (int) (event.getX() * SIZE / getWidth());
            int row = (int) (event.getY() * SIZE / getHeight());
            if (column >= 0 && column < SIZE && row >= 0 && row < SIZE) {
                pixels[SIZE * row + column] = 1;
            }
            answer.setText(String.valueOf(digits.predict(pixels)));
            invalidate();
            return true;
        }

        @Override
        protected void onDraw(Canvas canvas) {
            float width = getWidth() / (float) SIZE;
            float height = getHeight() / (float) SIZE;
            for (int i = 0; i < pixels.length; i++) {
                float left = i % SIZE * width;
                float top = i / SIZE * height;
                paint.setColor(pixels[i] > 0 ? 0xff000000 : 0xffeeeeee);
                canvas.drawRect(left, top, left + width - 1, top + height - 1, paint);
            }
        }
    }
}
