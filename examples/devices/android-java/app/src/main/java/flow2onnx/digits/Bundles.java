package flow2onnx.digits;

import android.content.Context;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/** The bundle among the program's assets, which the runtime reads from files. */
final class Bundles {
    private Bundles() {}

    static PersonalDigits open(Context context) throws IOException {
        File bundle = new File(context.getFilesDir(), "bundle");
        if (!new File(bundle, "manifest.json").exists()) {
            copy(context, bundle);
        }
        return new PersonalDigits(bundle, context.getFilesDir());
    }

    /** Copy all files, the manifest last: without it the folder is no bundle. */
    private static synchronized void copy(Context context, File bundle) throws IOException {
        if (!bundle.isDirectory() && !bundle.mkdir()) {
            throw new IOException(bundle + " cannot be made");
        }
        for (String name : context.getAssets().list("bundle")) {
            if (!name.equals("manifest.json")) {
                copy(context, bundle, name);
            }
        }
        copy(context, bundle, "manifest.json");
    }

    private static void copy(Context context, File bundle, String name) throws IOException {
        File partial = new File(bundle, name + ".part");
        try (InputStream from = context.getAssets().open("bundle/" + name);
                OutputStream to = new FileOutputStream(partial)) {
            byte[] bytes = new byte[1 << 16];
            for (int count = from.read(bytes); count > 0; count = from.read(bytes)) {
                to.write(bytes, 0, count);
            }
        }
        if (!partial.renameTo(new File(bundle, name))) {
            throw new IOException(partial + " cannot be renamed");
        }
    }
}
