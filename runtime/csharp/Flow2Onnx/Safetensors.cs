using System;
using System.Collections.Generic;

namespace Flow2Onnx
{
    /// <summary>Files of tensors.</summary>
    public static class Safetensors
    {
        /// <summary>The tensors of a file.</summary>
        public static IReadOnlyDictionary<string, Tensor> Load(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var call = new Call())
            {
                call.Check(Native.f2o_load_safetensors(call.Text(path), call.Results, call.Error));
                return call.CopyResults();
            }
        }

        /// <summary>Write named tensors to a file that appears whole or not at all.</summary>
        public static void Save(string path, params Tensor[] tensors)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var call = new Call())
            {
                call.Check(Native.f2o_save_safetensors(
                    call.Text(path), call.Tensors(tensors), (UIntPtr)(uint)tensors.Length, call.Error));
            }
        }
    }
}
