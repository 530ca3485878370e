namespace Flow2Onnx
{
    /// <summary>How models are opened, on the CPU.</summary>
    public sealed class Options
    {
        /// <summary>Threads of one operator; 0 is one for each core.</summary>
        public int Threads { get; set; }

        /// <summary>How far ONNX Runtime rewrites a model.</summary>
        public Optimization Optimization { get; set; }

        /// <summary>True: a step whose loss is not finite is refused and changes nothing.</summary>
        public bool FiniteLosses { get; set; }

        /// <summary>True: x.ort is opened in place of x.onnx.</summary>
        public bool OrtFormat { get; set; }

        /// <summary>The file of ONNX Runtime's library; null for that of the environment variable
        /// FLOW2ONNX_ORT_LIBRARY, or one that the process has or the loader finds.</summary>
        public string Library { get; set; }
    }
}
