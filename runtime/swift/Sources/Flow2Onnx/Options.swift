import CFlow2Onnx

/// How models are opened, on the CPU.
public struct Options {
    public enum Optimization: UInt32 {
        case all, extended, basic, none
    }

    /// Threads of one operator; 0 is one for each core.
    public var threads = 0
    /// How far ONNX Runtime rewrites a model.
    public var optimization = Optimization.all
    /// True: a step whose loss is not finite is refused and changes nothing.
    public var finiteLosses = false
    /// True: x.ort is opened in place of x.onnx.
    public var ortFormat = false
    /// The file of ONNX Runtime's library, where it is loaded; nil for that of the environment
    /// variable FLOW2ONNX_ORT_LIBRARY, or one that the process has or the loader finds.
    public var library: String?

    public init() {}

    func withRaw<R>(_ body: (UnsafePointer<f2o_options>) throws -> R) throws -> R {
        var raw = f2o_options()
        raw.threads = Int32(clamping: threads)
        raw.optimization = f2o_optimization(rawValue: numericCast(optimization.rawValue))
        raw.finite_losses = finiteLosses
        raw.ort_format = ortFormat
        guard let library = library else { return try body(&raw) }
        try checkText(library)
        return try library.withCString { text in
            raw.library = text
            return try body(&raw)
        }
    }
}

/// A tensor of a model or of the state, without its values.
public struct Spec {
    public let name: String
    public let dtype: DType
    /// The sizes; -1 where one is free.
    public let shape: [Int]
    /// The names of the free sizes, "?" without a name; nil in place of fixed sizes.
    public let symbols: [String?]
    /// Of a state tensor: variable, slot or counter.
    public let role: String?
    /// The variable of a slot.
    public let of: String?
    /// True for a state tensor that a step writes.
    public let isTrainable: Bool
    /// The whole numbers that a feed may hold.
    public let range: Range?

    public struct Range {
        public let least, below: Int64
        public let ignored: Int64?
        /// What reads the numbers, or an empty text.
        public let layer: String
    }

    init(_ raw: f2o_spec) {
        name = String(cString: raw.name)
        dtype = DType(rawValue: UInt32(raw.dtype.rawValue)) ?? .float32
        shape = UnsafeBufferPointer(start: raw.shape, count: raw.rank).map(Int.init)
        let named = UnsafeBufferPointer(start: raw.symbols, count: raw.symbols == nil ? 0 : raw.rank)
        symbols = named.map { $0.map { String(cString: $0) } }
        role = raw.role.map { String(cString: $0) }
        of = raw.of.map { String(cString: $0) }
        isTrainable = raw.trainable
        range = raw.range.map { found in
            Range(least: found.pointee.least, below: found.pointee.below,
                  ignored: found.pointee.has_ignored ? found.pointee.ignored : nil,
                  layer: String(cString: found.pointee.layer))
        }
    }

    /// The specs that a function of C gives with their number.
    static func list(_ call: (UnsafeMutablePointer<Int>) -> UnsafePointer<f2o_spec>?) -> [Spec] {
        var count = 0
        let first = call(&count)
        return UnsafeBufferPointer(start: first, count: count).map(Spec.init)
    }
}
