// swift-tools-version:5.7
import PackageDescription

// On iOS nothing is loaded at run time: ONNX Runtime is linked. Elsewhere it is found when a model is opened.
let loading: [Platform] = [.macOS, .linux]

let package = Package(
    name: "Flow2Onnx",
    platforms: [.iOS(.v13), .macOS(.v11)],
    products: [.library(name: "Flow2Onnx", targets: ["Flow2Onnx"])],
    dependencies: [
        .package(
            url: "https://github.com/microsoft/onnxruntime-swift-package-manager", from: "1.22.0")
    ],
    targets: [
        .target(
            name: "CFlow2Onnx",
            dependencies: [
                .product(
                    name: "onnxruntime", package: "onnxruntime-swift-package-manager",
                    condition: .when(platforms: [.iOS]))
            ],
            cSettings: [.define("FLOW2ONNX_LOAD_ORT", .when(platforms: loading))],
            linkerSettings: [
                .linkedLibrary("m", .when(platforms: [.linux])),
                .linkedLibrary("dl", .when(platforms: [.linux])),
            ]),
        .target(name: "Flow2Onnx", dependencies: ["CFlow2Onnx"]),
        .testTarget(name: "Flow2OnnxTests", dependencies: ["Flow2Onnx"]),
    ]
)
