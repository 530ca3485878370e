module flow2onnx

go 1.19
