/* What `Attention` and `AttentionGradient` are told of their tensors, on CPUs and on GPUs. */
#ifndef FLOW2ONNX_NATIVE_ATTENTION_SHAPE_H
#define FLOW2ONNX_NATIVE_ATTENTION_SHAPE_H

#include "ort.h"

namespace attention {

constexpr const char *NAMES[] = {"Attention", "AttentionGradient"};
enum MaskKind : int64_t { NO_MASK, ADDED, CHOSEN };

/* The attribute `shape`. */
struct Shape : abi::AttentionShape {
    int64_t groups() const { return batch * heads; }
    int64_t scores() const { return groups() * queries * keys; }
    int64_t query_size() const { return groups() * queries * width; }
    int64_t key_groups() const { return groups() / group; } /* heads of keys of all examples */
    int64_t key_size() const { return key_groups() * keys * width; }
    int64_t last_of_mask() const {
        return (batch - 1) * mask_batch + (heads - 1) * mask_head + (queries - 1) * mask_query +
               (keys - 1) * mask_key;
    }
    /* Whether no number of elements overflows; devices have rules of their own besides. */
    bool is_sound() const {
        return ort::is_within({batch, heads, queries, keys}, 1, abi::MOST_ATTENTION_EXTENT) &&
               ort::is_within({group}, 1, heads) && heads % group == 0 &&
               ort::is_within({mask}, NO_MASK, CHOSEN) && ort::is_within({is_precise}, 0, 1) &&
               ort::is_within({mask_batch, mask_head, mask_query, mask_key}, 0, int64_t(1) << 40);
    }
};

/* The operands of an operator, each checked for its size and type. */
struct Operands {
    const char *name;
    OrtKernelContext *context;

    OrtStatus *read(size_t at, ort::Element type, int64_t size, ort::Tensor *tensor) const {
        return read(at, type, size, size, tensor);
    }
    /* The mask, if there is one, which is the operand at `at`. */
    OrtStatus *read_mask(const Shape &shape, size_t at, ort::Tensor *tensor) const {
        if (shape.mask == NO_MASK) return nullptr;
        const ort::Element type = shape.mask == ADDED ? ort::FLOAT : ort::BOOL;
        return read(at, type, shape.last_of_mask() + 1, INT64_MAX, tensor);
    }

private:
    OrtStatus *read(size_t at, ort::Element type, int64_t least, int64_t most,
                    ort::Tensor *tensor) const {
        ORT_TRY(ort::input(context, at, tensor));
        if (tensor->type == type && ort::is_within({tensor->size()}, least, most)) return nullptr;
        return ort::refuse("%s: input %zu has %lld elements of type %d, wanted are %lld of type %d",
                           name, at, static_cast<long long>(tensor->size()), tensor->type,
                           static_cast<long long>(least), type);
    }
};

} // namespace attention

#endif
