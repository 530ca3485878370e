package flow2onnx.digits;

import android.content.Context;
import androidx.annotation.NonNull;
import androidx.work.Constraints;
import androidx.work.ExistingPeriodicWorkPolicy;
import androidx.work.PeriodicWorkRequest;
import androidx.work.WorkManager;
import androidx.work.Worker;
import androidx.work.WorkerParameters;
import java.io.IOException;
import java.util.concurrent.TimeUnit;

/** Training while nobody uses the phone and it is charged. */
public final class TrainWorker extends Worker {
    private volatile PersonalDigits digits;

    public TrainWorker(@NonNull Context context, @NonNull WorkerParameters parameters) {
        super(context, parameters);
    }

    /** Train once a day, from the first night on. */
    static void schedule(Context context) {
        Constraints constraints =
                new Constraints.Builder()
                        .setRequiresCharging(true)
                        .setRequiresDeviceIdle(true)
                        .build();
        PeriodicWorkRequest request =
                new PeriodicWorkRequest.Builder(TrainWorker.class, 1, TimeUnit.DAYS)
                        .setConstraints(constraints)
                        .build();
        WorkManager.getInstance(context)
                .enqueueUniquePeriodicWork("train", ExistingPeriodicWorkPolicy.KEEP, request);
    }

    @NonNull
    @Override
    public Result doWork() {
        try (PersonalDigits opened = Bundles.open(getApplicationContext())) {
            digits = opened;
            if (isStopped()) {
                return Result.retry();
            }
            opened.train(10);
            return Result.success();
        } catch (InterruptedException | IOException error) {
            return Result.retry(); // the phone is in use again, or its memory was full
        } finally {
            digits = null;
        }
    }

    @Override
    public void onStopped() {
        PersonalDigits running = digits;
        if (running != null) {
            running.stop();
        }
    }
}
