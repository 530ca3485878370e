"""Networks from the layers of torch, each with what is special about an architecture."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everyone writes

from tests.imported import networks
from tests.zoo.origins import Architecture
from tests.zoo.torch_origin import origins

__all__ = ["ARCHITECTURES", "origins"]


class Function(nn.Module):
    """Layers by name, and a function over them and the inputs."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def rows(*size):
    return torch.randn(3, *size)


def words(count=7, size=20):
    return torch.randint(1, size, (3, count))


def perceptron(activation):
    return lambda: (nn.Sequential(nn.Linear(8, 16), activation, nn.Linear(16, 4)), (rows(8),))


def images(*layers, size=8, channels=3):
    return lambda: (nn.Sequential(*layers), (rows(channels, size, size),))


def recurrent(cell, **settings):
    def make():
        layer = cell(6, 5, batch_first=True, **settings)
        width = 5 * (2 if settings.get("bidirectional") else 1)
        body = Function(lambda m, x: m.out(m.cell(x)[0]), cell=layer, out=nn.Linear(width, 3))
        return body, (rows(7, 6),)

    return make


def residual_mlp():
    layers = dict(a=nn.Linear(8, 8), b=nn.Linear(8, 8), norm=nn.LayerNorm(8))
    return Function(lambda m, x: x + m.b(F.gelu(m.a(m.norm(x)))), **layers), (rows(8),)


def re_zero():
    net = Function(lambda m, x: x + m.alpha * m.a(x).relu(), a=nn.Linear(8, 8))
    net.alpha = nn.Parameter(torch.tensor(0.1))
    return net, (rows(8),)


def highway():
    layers = dict(a=nn.Linear(8, 8), gate=nn.Linear(8, 8))

    def run(m, x):
        open_part = torch.sigmoid(m.gate(x))
        return open_part * m.a(x).relu() + (1 - open_part) * x

    return Function(run, **layers), (rows(8),)


def attention():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return Function(lambda m, x: m.a(x, x, x, need_weights=False)[0], a=layer), (rows(5, 8),)


def fused_attention(causal):
    layers = dict(qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))

    def run(m, x):
        q, k, v = (p.reshape(3, 5, 2, 4).transpose(1, 2) for p in m.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return m.out(y.transpose(1, 2).reshape(3, 5, 8))

    return lambda: (Function(run, **layers), (rows(5, 8),))


def rotary_attention():
    layers = dict(qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))

    def turn(x):
        angle = torch.arange(5.0)[:, None] / torch.tensor([1.0, 100.0])
        cos, sin = angle.cos(), angle.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def run(m, x):
        q, k, v = (p.reshape(3, 5, 2, 4).transpose(1, 2) for p in m.qkv(x).chunk(3, -1))
        scores = (turn(q) @ turn(k).transpose(-1, -2) / 2).softmax(-1)
        return m.out((scores @ v).transpose(1, 2).reshape(3, 5, 8))

    return Function(run, **layers), (rows(5, 8),)


def transformer_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Function(lambda m, x: m.net(x), net=net), (rows(5, 8),)


def transformer():
    net = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
    return Function(lambda m, x, y: m.net(x, y), net=net), (rows(5, 8), rows(4, 8))


def transformer_decoder():
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
    net = nn.TransformerDecoder(layer, 1)
    return Function(lambda m, x, y: m.net(x, y), net=net), (rows(5, 8), rows(4, 8))


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2, 1, 1),
    ), (rows(1, 12, 12),)  # fmt: skip


def generator():
    return nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh(),
    ), (rows(6, 1, 1),)  # fmt: skip


def variational():
    layers = dict(inside=nn.Linear(8, 6), outside=nn.Linear(3, 8))

    def run(m, x, noise):
        mean, spread = m.inside(x).chunk(2, -1)
        return m.outside(mean + noise * (spread / 2).exp())

    return Function(run, **layers), (rows(8), rows(3))


def siamese():
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    run = Function(lambda m, x, y: F.cosine_similarity(m.net(x), m.net(y)), net=net)
    return run, (rows(8), rows(8))


def deep_and_wide():
    layers = dict(
        table=nn.Embedding(20, 4), wide=nn.Linear(8, 1), deep=nn.Linear(12, 6), out=nn.Linear(6, 1)
    )

    def run(m, x, ids):
        deep = torch.cat([x, m.table(ids[:, 0])], -1)
        return m.wide(x) + m.out(m.deep(deep).relu())

    return Function(run, **layers), (rows(8), words())


def factorization_machine():
    def run(m, ids):
        v = m.table(ids)
        return m.linear(ids).sum((1, 2)) + ((v.sum(1) ** 2 - (v**2).sum(1)).sum(-1)) / 2

    layers = dict(table=nn.Embedding(20, 4), linear=nn.Embedding(20, 1))
    for table in layers.values():
        nn.init.normal_(table.weight, std=0.1)  # larger ones make the steps diverge
    return Function(run, **layers), (words(),)


def graph_convolution():
    layers = dict(a=nn.Linear(6, 8), b=nn.Linear(8, 3))

    def run(m, x, adjacency):
        degree = adjacency.sum(-1, keepdim=True).clamp(min=1)
        return m.b((adjacency @ m.a(x) / degree).relu())

    return Function(run, **layers), (rows(5, 6), torch.rand(3, 5, 5).round())


def message_passing():
    layers = dict(a=nn.Linear(6, 8), b=nn.Linear(8, 3))

    def run(m, x, source, target):
        sent = m.a(x)[source].relu()
        return m.b(torch.zeros(5, 8).index_add(0, target, sent))

    edges = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 2, 3, 4, 0, 2])
    return Function(run, **layers), (torch.randn(5, 6), *edges)


def mixture_of_experts():
    layers = dict(gate=nn.Linear(8, 3), experts=nn.ModuleList(nn.Linear(8, 4) for _ in range(3)))

    def run(m, x):
        weights, chosen = m.gate(x).softmax(-1).topk(2)
        found = torch.stack([e(x) for e in m.experts], 1)
        picked = found.gather(1, chosen[..., None].expand(-1, -1, 4))
        return (weights[..., None] * picked).sum(1)

    return Function(run, **layers), (rows(8),)


def squeeze_excite():
    layers = dict(conv=nn.Conv2d(3, 8, 3, padding=1), down=nn.Linear(8, 2), up=nn.Linear(2, 8))

    def run(m, x):
        y = m.conv(x)
        scale = m.up(m.down(y.mean((2, 3))).relu()).sigmoid()
        return y * scale[:, :, None, None]

    return Function(run, **layers), (rows(3, 8, 8),)


def pixel_shuffle():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(), nn.Conv2d(8, 12, 3, padding=1),
        nn.PixelShuffle(2),
    ), (rows(3, 6, 6),)  # fmt: skip


def upsampling(mode, **settings):
    def make():
        layers = dict(a=nn.Conv2d(2, 4, 3, padding=1), b=nn.Conv2d(4, 1, 3, padding=1))

        def run(m, x):
            return m.b(F.interpolate(m.a(x), scale_factor=2, mode=mode, **settings))

        return Function(run, **layers), (rows(2, 6, 6),)

    return make


def spatial_transformer():
    layers = dict(find=nn.Linear(36, 6), out=nn.Conv2d(1, 2, 3))

    def run(m, x):
        theta = m.find(x.flatten(1)).reshape(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        grid = F.affine_grid(theta, [3, 1, 6, 6], align_corners=False)
        return m.out(F.grid_sample(x, grid, align_corners=False))

    return Function(run, **layers), (rows(1, 6, 6),)


def wave_net():
    layers = {f"c{i}": nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(3)}

    def run(m, x):
        for i in range(3):
            a, b = getattr(m, f"c{i}")(F.pad(x, (2**i, 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return x

    return Function(run, **layers), (rows(4, 10),)


def temporal_convolution():
    layers = dict(a=nn.Conv1d(4, 8, 3, padding=2, dilation=2), out=nn.Linear(8, 3))
    return Function(lambda m, x: m.out(m.a(x).relu().mean(-1)), **layers), (rows(4, 10),)


def text_convolution():
    layers = dict(table=nn.Embedding(20, 6), a=nn.Conv1d(6, 5, 3), out=nn.Linear(5, 4))

    def run(m, ids):
        return m.out(m.a(m.table(ids).transpose(1, 2)).relu().amax(-1))

    return Function(run, **layers), (words(),)


def bag_of_words():
    layers = dict(table=nn.Embedding(20, 6, padding_idx=0), out=nn.Linear(6, 4))
    return Function(lambda m, ids: m.out(m.table(ids).mean(1)), **layers), (words(),)


def sequence_to_sequence():
    layers = dict(
        table=nn.Embedding(20, 6), read=nn.GRU(6, 5, batch_first=True),
        write=nn.GRU(6, 5, batch_first=True), out=nn.Linear(5, 20),
    )  # fmt: skip

    def run(m, source, target):
        _, state = m.read(m.table(source))
        return m.out(m.write(m.table(target), state)[0])

    return Function(run, **layers), (words(), words(4))


def physics_informed():
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    frequencies = Function(lambda m, x: m.net(torch.sin(x * 3)), net=net)
    return frequencies, (rows(2),)


def radial_basis():
    net = Function(lambda m, x: m.out((-((x[:, None] - m.at) ** 2).sum(-1)).exp()),
                   out=nn.Linear(6, 2))  # fmt: skip
    net.at = nn.Parameter(torch.randn(6, 4))
    return net, (rows(4),)


def neural_ode():
    layers = dict(f=nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)))

    def run(m, x):
        for _ in range(4):
            k = m.f(x)
            x = x + 0.25 * m.f(x + 0.125 * k)
        return x

    return Function(run, **layers), (rows(4),)


def coupling_flow():
    layers = dict(s=nn.Linear(4, 4), t=nn.Linear(4, 4))

    def run(m, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a, b * m.s(a).tanh().exp() + m.t(a)], -1)

    return Function(run, **layers), (rows(8),)


def capsules():
    layers = dict(a=nn.Linear(8, 12))

    def run(m, x):
        v = m.a(x).reshape(-1, 3, 4)
        square = (v**2).sum(-1, keepdim=True)
        return square / (1 + square) * v / (square + 1e-6).sqrt()

    return Function(run, **layers), (rows(8),)


def state_space():
    net = Function(None, inside=nn.Linear(4, 6), outside=nn.Linear(6, 4))
    net.decay = nn.Parameter(torch.rand(6))

    def run(m, x):
        state, found = torch.zeros(3, 6), []
        for t in range(5):
            state = torch.sigmoid(m.decay) * state + m.inside(x[:, t])
            found.append(m.outside(state))
        return torch.stack(found, 1)

    net.function = run
    return net, (rows(5, 4),)


def einsum_product():
    net = Function(lambda m, x: torch.einsum("bij,jkl,bl->bik", x, m.core, x[:, 0]))
    net.core = nn.Parameter(torch.randn(4, 5, 4) * 0.3)
    return net, (rows(3, 4),)


def weight_norm():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
    return nn.Sequential(layer, nn.Tanh()), (rows(8),)


def spectral_mixer():
    layers = dict(a=nn.Linear(8, 8), b=nn.Linear(8, 8))

    def run(m, x):
        return m.b(m.a(x.transpose(1, 2)).transpose(1, 2).relu())

    return Function(run, **layers), (rows(8, 8),)


def tied():
    net = Function(lambda m, ids: m.table(ids).tanh() @ m.table.weight.T, table=nn.Embedding(20, 6))
    return net, (words(),)


def made(factory, draw):
    return lambda: (factory(), draw())


ACTIVATIONS = dict(
    relu=nn.ReLU(), tanh=nn.Tanh(), gelu=nn.GELU(), silu=nn.SiLU(), elu=nn.ELU(), selu=nn.SELU(),
    mish=nn.Mish(), softplus=nn.Softplus(), hardswish=nn.Hardswish(), prelu=nn.PReLU(),
    leaky_relu=nn.LeakyReLU(), celu=nn.CELU(), glu=nn.Sequential(nn.Linear(16, 32), nn.GLU()),
)  # fmt: skip

ARCHITECTURES = [
    *(Architecture(f"perceptron, {n}", perceptron(a), "cross_entropy", ("torch",))
      for n, a in ACTIVATIONS.items()),
    Architecture("LeNet", images(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                 nn.Linear(54, 5)), "cross_entropy"),
    Architecture("convolutions in depth", images(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU6(),
                                                 nn.Conv2d(6, 4, 1))),
    Architecture("dilated convolutions", images(nn.Conv2d(3, 4, 3, dilation=2), nn.ELU(),
                                                nn.AvgPool2d(2))),
    Architecture("convolution in 3D", lambda: (nn.Conv3d(1, 3, 3), (rows(1, 5, 5, 5),))),
    Architecture("group normalisation", images(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU())),
    Architecture("instance normalisation",
                 images(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.ReLU())),
    Architecture("batch normalisation", images(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())),
    Architecture("response normalisation", images(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(3))),
    Architecture("RMS normalisation", lambda: (nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)),
                                               (rows(8),))),
    Architecture("adaptive pools", images(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(3),
                                          nn.AdaptiveMaxPool2d(1))),
    Architecture("padding by reflection", images(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3),
                                                 nn.ReplicationPad2d(1))),
    Architecture("residual network", made(networks.ResNet, lambda: (rows(3, 16, 16),)),
                 "cross_entropy"),
    Architecture("U-Net", made(networks.UNet, lambda: (rows(1, 16, 16),))),
    Architecture("text by LSTM", made(networks.Recurrent, lambda: (words(),)), "cross_entropy"),
    Architecture("RNN", recurrent(nn.RNN)),
    Architecture("LSTM", recurrent(nn.LSTM)),
    Architecture("LSTM, two layers both ways", recurrent(nn.LSTM, num_layers=2,
                                                         bidirectional=True)),
    Architecture("GRU", recurrent(nn.GRU)),
    Architecture("residual perceptron", residual_mlp),
    Architecture("ReZero", re_zero),
    Architecture("highway", highway),
    Architecture("multi-head attention", attention),
    Architecture("fused attention", fused_attention(False)),
    Architecture("causal attention", fused_attention(True)),
    Architecture("rotary attention", rotary_attention),
    Architecture("transformer encoder", transformer_encoder),
    Architecture("transformer decoder", transformer_decoder),
    Architecture("transformer", transformer),
    Architecture("convolutional autoencoder", autoencoder),
    Architecture("DCGAN generator", generator),
    Architecture("variational autoencoder", variational),
    Architecture("Siamese network", siamese),
    Architecture("wide and deep", deep_and_wide),
    Architecture("factorization machine", factorization_machine),
    Architecture("graph convolution", graph_convolution),
    Architecture("message passing", message_passing),
    Architecture("mixture of experts", mixture_of_experts),
    Architecture("squeeze and excitation", squeeze_excite),
    Architecture("sub-pixel convolution", pixel_shuffle),
    Architecture("bilinear upsampling", upsampling("bilinear", align_corners=False)),
    Architecture("bicubic upsampling", upsampling("bicubic", align_corners=True)),
    Architecture("nearest upsampling", upsampling("nearest")),
    Architecture("spatial transformer", spatial_transformer),
    Architecture("WaveNet", wave_net),
    Architecture("temporal convolution", temporal_convolution),
    Architecture("convolution of text", text_convolution, "cross_entropy"),
    Architecture("bag of words", bag_of_words, "cross_entropy"),
    Architecture("sequence to sequence", sequence_to_sequence),
    Architecture("sine network", physics_informed),
    Architecture("radial basis functions", radial_basis),
    Architecture("neural ODE", neural_ode),
    Architecture("coupling flow", coupling_flow),
    Architecture("capsules", capsules),
    Architecture("state space", state_space),
    Architecture("tensor product", einsum_product),
    Architecture("weight normalisation", weight_norm),
    Architecture("mixer", spectral_mixer),
    Architecture("tied embedding", tied),
]  # fmt: skip
