using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Flow2Onnx
{
    /// <summary>Addresses, and texts that end in a zero.</summary>
    internal static class Memory
    {
        private static readonly UTF8Encoding Strict = new UTF8Encoding(false, true);

        internal static IntPtr At(IntPtr address, long offset)
        {
            return new IntPtr(address.ToInt64() + offset);
        }

        /// <summary>The text at an address; null at 0.</summary>
        internal static string Text(IntPtr address)
        {
            if (address == IntPtr.Zero) return null;
            int length = 0;
            while (Marshal.ReadByte(address, length) != 0) length++;
            var bytes = new byte[length];
            Marshal.Copy(address, bytes, 0, length);
            return Encoding.UTF8.GetString(bytes);
        }

        /// <summary>UTF-8 with a zero behind it; a text that C cannot hold is refused.</summary>
        internal static byte[] Encoded(string text)
        {
            try
            {
                if (text.IndexOf('\0') < 0) return Strict.GetBytes(text + "\0");
            }
            catch (EncoderFallbackException)
            {
                throw Unfit(text); // half a surrogate pair
            }
            throw Unfit(text);
        }

        private static OptionsException Unfit(string text)
        {
            return new OptionsException("the text \"" + text + "\" holds a zero or half a character",
                                        "give names and paths of whole characters");
        }
    }
}
