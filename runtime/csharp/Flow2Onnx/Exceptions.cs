using System;

namespace Flow2Onnx
{
    /// <summary>Whatever the runtime refuses. The message says what was asked and what was got, and
    /// on a second line what to do; a refusal changes nothing.</summary>
    public abstract class Flow2OnnxException : Exception
    {
        internal Flow2OnnxException(Status status, string message, string hint)
            : base(hint.Length == 0 ? message : message + "\n  " + hint)
        {
            Status = status;
            Hint = hint;
        }

        /// <summary>Which kind it is; each has its own exception.</summary>
        public Status Status { get; }

        /// <summary>What to do; empty where nobody knows.</summary>
        public string Hint { get; }

        /// <summary>The exception of a status; the text has the hint on a second line.</summary>
        internal static Flow2OnnxException Of(Status status, string text)
        {
            int end = text.IndexOf('\n');
            string message = end < 0 ? text : text.Substring(0, end);
            string hint = end < 0 ? "" : text.Substring(end + 1).Trim();
            switch (status)
            {
                case Status.BundleError: return new BundleException(message, hint);
                case Status.StateError: return new StateException(message, hint);
                case Status.FeedError: return new FeedException(message, hint);
                case Status.RunError: return new RunException(message, hint);
                case Status.OptionsError: return new OptionsException(message, hint);
                case Status.NonFiniteError: return new NonFiniteException(message, hint);
                case Status.FileError: return new FileException(message, hint);
                case Status.MemoryError: return new MemoryException(message, hint);
                case Status.RuntimeError: return new MissingRuntimeException(message, hint);
                case Status.StoppedError: return new StoppedException(message, hint);
                default: throw new InvalidOperationException("the C runtime has a new status " + status);
            }
        }
    }

    /// <summary>A bundle, model or state file that is not what the contract asks for.</summary>
    public sealed class BundleException : Flow2OnnxException
    {
        internal BundleException(string message, string hint) : base(Status.BundleError, message, hint) { }
    }

    /// <summary>A value or request that does not fit the state.</summary>
    public sealed class StateException : Flow2OnnxException
    {
        internal StateException(string message, string hint) : base(Status.StateError, message, hint) { }
    }

    /// <summary>Arrays that do not fit a model's inputs.</summary>
    public sealed class FeedException : Flow2OnnxException
    {
        internal FeedException(string message, string hint) : base(Status.FeedError, message, hint) { }
    }

    /// <summary>A model that was opened but could not be run on these values.</summary>
    public sealed class RunException : Flow2OnnxException
    {
        internal RunException(string message, string hint) : base(Status.RunError, message, hint) { }
    }

    /// <summary>An option without meaning.</summary>
    public sealed class OptionsException : Flow2OnnxException
    {
        internal OptionsException(string message, string hint) : base(Status.OptionsError, message, hint) { }
    }

    /// <summary>A loss that is NaN or infinite while finite losses are asked for.</summary>
    public sealed class NonFiniteException : Flow2OnnxException
    {
        internal NonFiniteException(string message, string hint) : base(Status.NonFiniteError, message, hint) { }
    }

    /// <summary>A file that cannot be written.</summary>
    public sealed class FileException : Flow2OnnxException
    {
        internal FileException(string message, string hint) : base(Status.FileError, message, hint) { }
    }

    /// <summary>No memory left.</summary>
    public sealed class MemoryException : Flow2OnnxException
    {
        internal MemoryException(string message, string hint) : base(Status.MemoryError, message, hint) { }
    }

    /// <summary>An ONNX Runtime that is missing or too old.</summary>
    public sealed class MissingRuntimeException : Flow2OnnxException
    {
        internal MissingRuntimeException(string message, string hint) : base(Status.RuntimeError, message, hint) { }
    }

    /// <summary>A run that was stopped.</summary>
    public sealed class StoppedException : Flow2OnnxException
    {
        internal StoppedException(string message, string hint) : base(Status.StoppedError, message, hint) { }
    }
}
