"""Networks of torchvision with random weights and small images."""

import torch
import torchvision

from tests.zoo.origins import Architecture
from tests.zoo.torch_origin import First, origins

__all__ = ["ARCHITECTURES", "origins"]

# names with the size of their images; only those of at most a few million weights
_CLASSIFIERS = {
    "squeezenet1_1": 48, "resnet18": 32, "mobilenet_v2": 32, "mobilenet_v3_small": 32,
    "shufflenet_v2_x0_5": 32, "mnasnet0_5": 32, "efficientnet_b0": 32, "regnet_y_400mf": 32,
    "googlenet": 48, "densenet121": 32,
}  # fmt: skip


def _classifier(name, size):
    def make():
        settings = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
        net = torchvision.models.get_model(name, weights=None, num_classes=5, **settings)
        return First(net), (torch.randn(2, 3, size, size),)

    return make


def vision_transformer():
    net = torchvision.models.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=5)
    return net, (torch.randn(2, 3, 16, 16),)


def swin():
    net = torchvision.models.SwinTransformer(
        [2, 2], 8, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0, num_classes=5
    )
    return net, (torch.randn(2, 3, 16, 16),)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    net = ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=5)
    return net, (torch.randn(2, 3, 16, 16),)


def segmentation():
    net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3
    )
    return First(net), (torch.randn(2, 3, 32, 32),)


ARCHITECTURES = [
    *(Architecture(n, _classifier(n, size), "cross_entropy", ("torch", "torch, optimised"))
      for n, size in _CLASSIFIERS.items()),
    Architecture("VisionTransformer", vision_transformer, "cross_entropy"),
    Architecture("SwinTransformer", swin, "cross_entropy"),
    Architecture("ConvNeXt", convnext, "cross_entropy"),
    Architecture("lraspp_mobilenet_v3_large", segmentation, "mse", ("torch",)),
]  # fmt: skip
