"""Networks in torch, small and with random weights, as people export them."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everyone writes


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    """A stem, two stages, a mean, a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.stages = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.bn(self.stem(x))), 3, 2, 1)
        return self.head(self.stages(y).mean((2, 3)))


class Recurrent(nn.Module):
    """An embedding, an LSTM, a classifier of its last state."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, words):
        states, _ = self.lstm(self.embedding(words))
        return self.head(states[:, -1])


class UNet(nn.Module):
    """Down, up by Resize and by ConvTranspose, with bridges."""

    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(1, 6, 3, padding=1)
        self.down2 = nn.Conv2d(6, 12, 3, padding=1)
        self.bottom = nn.Conv2d(12, 12, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.merge = nn.Conv2d(18, 6, 3, padding=1)
        self.last = nn.Conv2d(12, 1, 1)

    def forward(self, x):
        first = F.relu(self.down1(x))
        second = F.relu(self.down2(F.max_pool2d(first, 2)))
        low = F.relu(self.bottom(F.max_pool2d(second, 2)))
        middle = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        side = self.up(second)
        joined = F.relu(self.merge(torch.cat([middle, self.up(low)], 1)))
        wide = F.interpolate(joined, scale_factor=2, mode="nearest")
        return self.last(torch.cat([wide, first * torch.sigmoid(side)], 1))


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=16, patch_size=4, num_channels=3, hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32, num_labels=5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    return Logits(ViTForImageClassification(config))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=37, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    return Logits(GPT2LMHeadModel(config))


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, num_labels=3, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    return Logits(BertForSequenceClassification(config))


class Logits(nn.Module):
    """A model of `transformers` as a function of one tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits
