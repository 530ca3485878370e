import CFlow2Onnx

/// An element type; the numbers are ONNX's.
public enum DType: UInt32 {
    case float32 = 1, uint8, int8, uint16, int16, int32, int64
    case bool = 9, float16, float64, uint32, uint64
    case bfloat16 = 16

    /// Bytes of one element.
    public var size: Int { f2o_dtype_size(raw) }

    var raw: f2o_dtype { f2o_dtype(rawValue: numericCast(rawValue)) }
}

/// A type of Swift that is an element type of ONNX. float16 and bfloat16 are handled as their bits.
public protocol Element {
    static var dtype: DType { get }
}

extension Float: Element { public static var dtype: DType { .float32 } }
extension Double: Element { public static var dtype: DType { .float64 } }
extension Bool: Element { public static var dtype: DType { .bool } }
extension Int8: Element { public static var dtype: DType { .int8 } }
extension Int16: Element { public static var dtype: DType { .int16 } }
extension Int32: Element { public static var dtype: DType { .int32 } }
extension Int64: Element { public static var dtype: DType { .int64 } }
extension UInt8: Element { public static var dtype: DType { .uint8 } }
extension UInt16: Element { public static var dtype: DType { .uint16 } }
extension UInt32: Element { public static var dtype: DType { .uint32 } }
extension UInt64: Element { public static var dtype: DType { .uint64 } }

public struct Float16Bits: Element, Equatable {
    public var bits: UInt16
    public init(bits: UInt16) { self.bits = bits }
    public static var dtype: DType { .float16 }
}

public struct BFloat16Bits: Element, Equatable {
    public var bits: UInt16
    public init(bits: UInt16) { self.bits = bits }
    public static var dtype: DType { .bfloat16 }
}

/// Elements that lie one behind the other.
protocol Storage {
    func withBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R
}

extension Array: Storage where Element: Flow2Onnx.Element {
    func withBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R {
        try withUnsafeBytes(body)
    }
}

/// A tensor of an array, in C order: the array itself, which a call reads where it lies. A feed
/// without a name is the one that stands at its place.
public struct Tensor {
    public let name: String?
    public let dtype: DType
    public let shape: [Int]
    private let storage: Storage
    private let offset: Int  // of the first element used, in bytes

    /// A tensor of an array. Without sizes it is a single number.
    public init<T: Element>(_ values: [T], shape: [Int] = [], name: String? = nil) throws {
        guard shape.allSatisfy({ $0 >= 0 }), Tensor.count(of: shape) == values.count else {
            throw Flow2OnnxError(
                .feed, "\(T.dtype) of shape \(shape) is not of \(values.count) elements",
                hint: "give as many elements as the product of the sizes")
        }
        try name.map(checkText)
        self.init(name: name, dtype: T.dtype, shape: shape, storage: values, offset: 0)
    }

    private init(name: String?, dtype: DType, shape: [Int], storage: Storage, offset: Int) {
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.storage = storage
        self.offset = offset
    }

    /// A copy of what C holds.
    init(copying raw: f2o_tensor) {
        let bytes = UnsafeRawBufferPointer(start: raw.data, count: withUnsafePointer(to: raw, f2o_tensor_bytes))
        guard let dtype = DType(rawValue: UInt32(raw.dtype.rawValue)) else {
            preconditionFailure("the C runtime has a new element type \(raw.dtype.rawValue)")
        }
        let sizes = UnsafeBufferPointer(start: raw.shape, count: raw.rank).map(Int.init)
        self.init(name: raw.name.map { String(cString: $0) }, dtype: dtype, shape: sizes,
                  storage: [UInt8](bytes), offset: 0)
    }

    /// The product of the sizes; nil beyond what an Int holds.
    private static func count(of shape: [Int]) -> Int? {
        if shape.contains(0) { return 0 }
        var count = 1
        for size in shape {
            let (product, overflow) = count.multipliedReportingOverflow(by: size)
            if overflow { return nil }
            count = product
        }
        return count
    }

    /// The number of elements.
    public var count: Int { shape.reduce(1, *) }

    /// The same array under a name.
    public func named(_ name: String) throws -> Tensor {
        try checkText(name)
        return Tensor(name: name, dtype: dtype, shape: shape, storage: storage, offset: offset)
    }

    /// One place on the first axis, such as one batch of many, in the same array.
    public func row(_ index: Int) throws -> Tensor {
        guard let rows = shape.first, (0..<rows).contains(index) else {
            throw Flow2OnnxError(.state, "a tensor of shape \(shape) has no row \(index)",
                                 hint: "count from 0, below the first size")
        }
        let inner = Array(shape.dropFirst())
        let start = offset + index * inner.reduce(dtype.size, *)
        return Tensor(name: name, dtype: dtype, shape: inner, storage: storage, offset: start)
    }

    /// The elements, a copy.
    public func values<T: Element>(_ type: T.Type = T.self) throws -> [T] {
        guard T.dtype == dtype else {
            throw Flow2OnnxError(.state, "\(name ?? "a tensor") is \(dtype), read as \(T.dtype)",
                                 hint: "read it as what it is")
        }
        let count = self.count
        return withBytes { bytes in
            [T](unsafeUninitializedCapacity: count) { into, filled in
                UnsafeMutableRawBufferPointer(into).copyMemory(from: bytes)
                filled = count
            }
        }
    }

    /// The mean of a float32 tensor, such as a batch's loss.
    public func mean() throws -> Double {
        let all = try values(Float.self)
        return all.reduce(0) { $0 + Double($1) } / Double(all.count)
    }

    func withBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R {
        try storage.withBytes { whole in
            try body(UnsafeRawBufferPointer(rebasing: whole[offset..<offset + count * dtype.size]))
        }
    }

    /// The tensor as C reads it, for as long as the body runs.
    func withRaw<R>(_ body: (f2o_tensor) throws -> R) throws -> R {
        let sizes = shape.map(Int64.init)
        return try withBytes { bytes in
            try sizes.withUnsafeBufferPointer { sizes in
                var raw = f2o_tensor()
                raw.dtype = dtype.raw
                raw.rank = sizes.count
                raw.shape = sizes.baseAddress
                raw.data = bytes.baseAddress
                guard let name = name else { return try body(raw) }
                return try name.withCString { text in
                    raw.name = text
                    return try body(raw)
                }
            }
        }
    }
}

/// What C reads of several tensors, for as long as the body runs.
func withRaw<R>(
    _ tensors: [Tensor], _ raw: [f2o_tensor] = [],
    _ body: (UnsafeBufferPointer<f2o_tensor>) throws -> R
) throws -> R {
    guard let first = tensors.first else { return try raw.withUnsafeBufferPointer(body) }
    return try first.withRaw { try withRaw(Array(tensors.dropFirst()), raw + [$0], body) }
}

/// What C reads of several texts, for as long as the body runs.
func withTexts<R>(
    _ texts: [String], _ raw: [UnsafePointer<CChar>?] = [],
    _ body: (UnsafeBufferPointer<UnsafePointer<CChar>?>) throws -> R
) throws -> R {
    guard let first = texts.first else { return try raw.withUnsafeBufferPointer(body) }
    try checkText(first)
    return try first.withCString { try withTexts(Array(texts.dropFirst()), raw + [$0], body) }
}

/// Results of calls; its memory serves every call.
final class Results {
    private var raw = f2o_tensors()

    deinit { f2o_tensors_free(&raw) }

    /// What a call leaves, copied.
    func of(_ call: (UnsafeMutablePointer<f2o_tensors>) throws -> Void) throws -> [String: Tensor] {
        try call(&raw)
        let tensors = UnsafeBufferPointer(start: raw.items, count: raw.count).map(Tensor.init(copying:))
        return Dictionary(uniqueKeysWithValues: tensors.map { ($0.name ?? "", $0) })
    }
}
