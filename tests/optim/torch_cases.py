"""Optimizers by name and their counterparts in torch, and the small network that both train."""

import numpy as np

STEPS = 20
# Our text, the class in torch.optim, its settings; matrices by another class where a fourth is.
CASES = {
    "sgd": ("sgd(lr=0.05)", "SGD", {"lr": 0.05}),
    "momentum": ("sgd(lr=0.05, momentum=0.9)", "SGD", {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (
        "sgd(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)", "SGD",
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    "dampening": (
        "sgd(lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.01)", "SGD",
        {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "adam": ("adam", "Adam", {}),
    "adam_l2": (
        "adam(lr=0.02, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1)", "Adam",
        {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    ),
    "amsgrad": ("adam(lr=0.02, beta2=0.6, amsgrad=True)", "Adam",
                {"lr": 0.02, "betas": (0.9, 0.6), "amsgrad": True}),
    "adamw": ("adamw", "AdamW", {}),
    "adamw_amsgrad": (
        "adamw(lr=0.02, beta2=0.6, weight_decay=0.2, amsgrad=True)", "AdamW",
        {"lr": 0.02, "betas": (0.9, 0.6), "weight_decay": 0.2, "amsgrad": True},
    ),
    "rmsprop": ("rmsprop", "RMSprop", {}),
    "rmsprop_centered": (
        "rmsprop(lr=0.003, alpha=0.9, eps=1e-6, centered=True, momentum=0.7, weight_decay=0.1)",
        "RMSprop",
        {"lr": 0.003, "alpha": 0.9, "eps": 1e-6, "centered": True, "momentum": 0.7,
         "weight_decay": 0.1},
    ),
    "adagrad": ("adagrad", "Adagrad", {}),
    "adagrad_slowed": (
        "adagrad(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.1)", "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.1},
    ),
    "adadelta": ("adadelta", "Adadelta", {}),
    "adadelta_decay": ("adadelta(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1)", "Adadelta",
                       {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    "nadam": ("nadam", "NAdam", {}),
    "nadam_decoupled": (
        "nadam(lr=0.02, beta1=0.8, momentum_decay=0.01, weight_decay=0.1, "
        "decoupled_weight_decay=True)", "NAdam",
        {"lr": 0.02, "betas": (0.8, 0.999), "momentum_decay": 0.01, "weight_decay": 0.1,
         "decoupled_weight_decay": True},
    ),
    "radam": ("radam", "RAdam", {}),
    "radam_l2": ("radam(lr=0.02, beta2=0.9, weight_decay=0.1)", "RAdam",
                 {"lr": 0.02, "betas": (0.9, 0.9), "weight_decay": 0.1}),
    "radam_decoupled": (
        "radam(lr=0.02, beta2=0.9, weight_decay=0.1, decoupled_weight_decay=True)", "RAdam",
        {"lr": 0.02, "betas": (0.9, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "adamax": ("adamax", "Adamax", {}),
    "adamax_l2": ("adamax(lr=0.02, beta2=0.7, weight_decay=0.1)", "Adamax",
                  {"lr": 0.02, "betas": (0.9, 0.7), "weight_decay": 0.1}),
    "muon": ("muon(lr=0.02, adamw_lr=0.003)", "AdamW", {"lr": 0.003, "weight_decay": 0.1},
             ("Muon", {"lr": 0.02})),
    "muon_plain": (
        "muon(nesterov=False, ns_steps=3, momentum=0.8, weight_decay=0.0, "
        "adjust_lr='match_rms_adamw', adamw_beta1=0.8, adamw_beta2=0.9, adamw_eps=1e-6)",
        "AdamW", {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.0},
        ("Muon", {"nesterov": False, "ns_steps": 3, "momentum": 0.8, "weight_decay": 0.0,
                  "adjust_lr_fn": "match_rms_adamw"}),
    ),
    "muon_unclamped": (
        "muon(lr=0.01, adjust_lr='spectral_unclamped')", "AdamW", {"lr": 0.01, "weight_decay": 0.1},
        ("Muon", {"lr": 0.01, "adjust_lr_fn": "spectral_unclamped"}),
    ),
}  # fmt: skip
# Our text, the class in torch.optim.lr_scheduler, its settings; the rate is 0.3.
SCHEDULES = {
    "constant": ("constant", "ConstantLR", {"factor": 1.0}),
    "cosine": ("cosine(total_steps=40, min_lr=0.01)", "CosineAnnealingLR",
               {"T_max": 40, "eta_min": 0.01}),
    "restarts": ("cosine_restarts(period=7, min_lr=0.02)", "CosineAnnealingWarmRestarts",
                 {"T_0": 7, "eta_min": 0.02}),
    "restarts_grown": ("cosine_restarts(period=3, multiplier=2)", "CosineAnnealingWarmRestarts",
                       {"T_0": 3, "T_mult": 2}),
    "one_cycle": ("one_cycle(total_steps=41)", "OneCycleLR",
                  {"max_lr": 0.3, "total_steps": 41}),
    "one_cycle_linear": (
        "one_cycle(total_steps=41, pct_start=0.2, anneal='linear', div_factor=10.0, "
        "final_div_factor=50.0)", "OneCycleLR",
        {"max_lr": 0.3, "total_steps": 41, "pct_start": 0.2, "anneal_strategy": "linear",
         "div_factor": 10.0, "final_div_factor": 50.0},
    ),
    "one_cycle_three": ("one_cycle(total_steps=41, three_phase=True)", "OneCycleLR",
                        {"max_lr": 0.3, "total_steps": 41, "three_phase": True}),
    "step": ("step(step_size=6, gamma=0.5)", "StepLR", {"step_size": 6, "gamma": 0.5}),
    "multi_step": ("multi_step(milestones=[3, 10, 11])", "MultiStepLR",
                   {"milestones": [3, 10, 11]}),
    "exponential": ("exponential(gamma=0.9)", "ExponentialLR", {"gamma": 0.9}),
    "polynomial": ("polynomial(total_steps=30, power=2.0)", "PolynomialLR",
                   {"total_iters": 30, "power": 2.0}),
    "linear": ("linear(total_steps=30, end_lr=0.03)", "LinearLR",
               {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 30}),
}  # fmt: skip
RATE, LENGTH = 0.3, 41
SHAPES = {"w1": (4, 6), "b1": (6,), "w2": (6, 3), "b2": (3,), "scale": ()}


def batches():
    """Twenty batches of x (5, 4) and y (5, 3) in float64."""
    draw = np.random.default_rng(7)
    return [(draw.standard_normal((5, 4)), draw.standard_normal((5, 3))) for _ in range(STEPS)]


def weights():
    """The first weights of (tanh(x w1 + b1) w2 + b2) * scale, whose mean squared error is taken."""
    draw = np.random.default_rng(3)
    found = {name: draw.standard_normal(shape) * 0.5 for name, shape in SHAPES.items()}
    return found | {"scale": np.float64(1.25)}
