"""Every training update, dense and sparse, on variables of both kinds: three steps each, the variable and its slots."""
from cases import *

RAW = tf.raw_ops
GRAD, INDICES = object(), object()
REAL = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
# op: slots, other arguments in any order
DENSE = {
    "ApplyGradientDescent": ([], dict(alpha=.1, delta=GRAD)),
    "ApplyProximalGradientDescent": ([], dict(alpha=.1, l1=.2, l2=.3, delta=GRAD)),
    "ApplyMomentum": (["accum"], dict(lr=.1, grad=GRAD, momentum=.9)),
    "ApplyKerasMomentum": (["accum"], dict(lr=.1, grad=GRAD, momentum=.9)),
    "ApplyAdagrad": (["accum"], dict(lr=.1, grad=GRAD)),
    "ApplyAdagradV2": (["accum"], dict(lr=.1, epsilon=1e-3, grad=GRAD)),
    "ApplyProximalAdagrad": (["accum"], dict(lr=.1, l1=.2, l2=.3, grad=GRAD)),
    "ApplyAdagradDA": (["gradient_accumulator", "gradient_squared_accumulator"],
                       dict(grad=GRAD, lr=.1, l1=.01, l2=.3, global_step=3)),
    "ApplyAdadelta": (["accum", "accum_update"], dict(lr=.1, rho=.95, epsilon=1e-3, grad=GRAD)),
    "ApplyRMSProp": (["ms", "mom"], dict(lr=.1, rho=.9, momentum=.5, epsilon=1e-3, grad=GRAD)),
    "ApplyCenteredRMSProp": (["mg", "ms", "mom"], dict(lr=.1, rho=.9, momentum=.5, epsilon=10., grad=GRAD)),
    "ApplyFtrl": (["accum", "linear"], dict(grad=GRAD, lr=.1, l1=.2, l2=.3, lr_power=-.5)),
    "ApplyFtrlV2": (["accum", "linear"], dict(grad=GRAD, lr=.1, l1=.2, l2=.3, l2_shrinkage=.1, lr_power=-.5)),
    "ApplyAdam": (["m", "v"], dict(beta1_power=.9, beta2_power=.999, lr=.1, beta1=.9, beta2=.999, epsilon=1e-3, grad=GRAD)),
    "ApplyAdamWithAmsgrad": (["m", "v", "vhat"], dict(beta1_power=.9, beta2_power=.999, lr=.1, beta1=.9, beta2=.999,
                                                      epsilon=1e-3, grad=GRAD)),
    "ApplyAdaMax": (["m", "v"], dict(beta1_power=.9, lr=.1, beta1=.9, beta2=.999, epsilon=1e-3, grad=GRAD)),
    "ApplyAddSign": (["m"], dict(lr=.1, alpha=1., sign_decay=.8, beta=.9, grad=GRAD)),
    "ApplyPowerSign": (["m"], dict(lr=.1, logbase=1., sign_decay=.8, beta=.9, grad=GRAD)),
}
NO_SPARSE = {"ApplyGradientDescent", "ApplyAdam", "ApplyAdamWithAmsgrad", "ApplyAdaMax", "ApplyAddSign", "ApplyPowerSign"}
FEW_TYPES = {"ApplyProximalGradientDescent": REAL[:2], "ApplyProximalAdagrad": REAL[:2], "ApplyAdagradDA": REAL[:2],
             "ApplyAdaMax": REAL[:3]}
RESOURCE_ONLY = {"ApplyKerasMomentum", "ApplyAdamWithAmsgrad"}


def case(op, slots, args, resource, sparse, flags, shape, indices, dtypes):
    def build(dtype):
        var_shape = [max(indices) + 2] + list(shape[1:]) if sparse else list(shape)
        names, variables, inits = ["var"] + slots, {}, []
        for name in names:
            start = feed(R(*var_shape, lo=.5, hi=2))
            if resource:
                v = RAW.VarHandleOp(dtype=dtype, shape=var_shape, shared_name=name)
                inits.append(RAW.AssignVariableOp(resource=v, value=start))
            else:
                v = RAW.VariableV2(dtype=dtype, shape=var_shape, shared_name=name)
                inits.append(RAW.Assign(ref=v, value=start))
            variables[name] = v
        kinds = dict(variables)
        for name, value in args.items():
            if value is GRAD:
                kinds[name] = feed(R(*shape))
            else:
                kinds[name] = tf.constant(value, tf.int64 if name == "global_step" else dtype)
        if sparse:
            if "delta" in kinds:
                kinds["grad"] = kinds.pop("delta")
            kinds["indices"] = tf.constant(indices, tf.int64 if resource else tf.int32)
        full = ("Resource" if resource else "") + ("Sparse" if sparse else "") + op
        update = getattr(RAW, full)(**kinds, **flags)
        read = [RAW.ReadVariableOp(resource=v, dtype=dtype) if resource else tf.identity(v) for v in variables.values()]
        return [inits] + [[update], read] * 3
    label = f"{'Resource' if resource else ''}{'Sparse' if sparse else ''}{op} {shape} " + \
            " ".join(f"{k}={v}" for k, v in flags.items())
    graph(label, build, dtypes=dtypes, tol=None)


for op_name, (op_slots, op_args) in DENSE.items():
    options, types = [{}], FEW_TYPES.get(op_name, REAL)
    if "Momentum" in op_name or op_name == "ApplyAdam":
        options.append({"use_nesterov": True})
    if op_name in ("ApplyAdagrad", "ApplyAdagradV2"):
        options.append({"update_slots": False})
    if "Ftrl" in op_name:
        options.append({"multiply_linear_by_lr": True})
    for opts in options:
        for is_resource in (False, True):
            if op_name in RESOURCE_ONLY and not is_resource:
                continue
            case(op_name, op_slots, op_args, is_resource, False, opts, (5, 7), None, types)
            case(op_name, op_slots, op_args, is_resource, False, opts, (), None, [tf.float32])
            case(op_name, op_slots, op_args, is_resource, False, opts, (0,), None, [tf.float32])
            if op_name not in NO_SPARSE:
                case(op_name, op_slots, op_args, is_resource, True, opts, (3, 4), [4, 0, 2],
                     types[:3] if "RMSProp" in op_name else types)
                case(op_name, op_slots, op_args, is_resource, True, opts, (3,), [4, 0, 2], [tf.float32])
                case(op_name, op_slots, op_args, is_resource, True, opts, (3, 2, 2), [1, 1, 2], [tf.float32])
    if "l1" in op_args:
        case(op_name, op_slots, {**op_args, "l1": 0.}, True, False, {}, (5, 7), None, REAL[:2])
        case(op_name, op_slots, {**op_args, "l1": 0.}, True, True, {}, (3, 4), [4, 0, 2], REAL[:2])
    if "lr_power" in op_args:
        case(op_name, op_slots, {**op_args, "lr_power": -.3}, True, False, {}, (5, 7), None, REAL[:2])
        case(op_name, op_slots, {**op_args, "lr_power": -.3}, True, True, {}, (3, 4), [4, 0, 2], REAL[:2])
for op_name in ("ApplyGradientDescent", "ApplyMomentum", "ApplyKerasMomentum", "ApplyAdagrad", "ApplyAdagradV2",
                "ApplyAdadelta", "ApplyRMSProp", "ApplyCenteredRMSProp", "ApplyAdam"):
    case(op_name, *DENSE[op_name], True, False, {}, (5, 7), None, COMPLEX)
    if op_name not in NO_SPARSE:
        case(op_name, *DENSE[op_name], True, True, {}, (3, 4), [4, 0, 2], COMPLEX)
case("ApplyAdam", *DENSE["ApplyAdam"], True, False, {"use_nesterov": True}, (5, 7), None, COMPLEX)
case("ApplyAdam", *DENSE["ApplyAdam"], True, False, {}, (300, 200), None, [tf.float32])
case("ApplyMomentum", *DENSE["ApplyMomentum"], True, True, {}, (300, 200), list(range(0, 600, 2)), [tf.float32])


def hidden(x):
    return tf.placeholder_with_default(x, None)


def fails(name, code, message, build):
    def made():
        h = [RAW.VarHandleOp(dtype=tf.float32, shape=None, shared_name=n) for n in "vm"]
        init = [RAW.AssignVariableOp(resource=h[0], value=np.ones(3, np.float32)),
                RAW.AssignVariableOp(resource=h[1], value=np.ones(4, np.float32))]
        return [init, [build(*h)]]
    graph(name, made, error=code, message=message)


ONES = np.ones(3, np.float32)
fails("unset variable", "INTERNAL", "Invalid variable reference.",
      lambda v, m: RAW.ResourceApplyGradientDescent(var=RAW.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="none"),
                                                    alpha=.1, delta=ONES))
fails("gradient shape", "INVALID_ARGUMENT", r"var and delta do not have the same shape\[3\] \[4\]",
      lambda v, m: RAW.ResourceApplyGradientDescent(var=v, alpha=.1, delta=hidden(np.ones(4, np.float32))))
fails("no scalar", "INVALID_ARGUMENT", r"alpha is not a scalar: \[2\]",
      lambda v, m: RAW.ResourceApplyGradientDescent(var=v, alpha=hidden([.1, .2]), delta=hidden(ONES)))
fails("slot shape", "INVALID_ARGUMENT", r"var and accum do not have the same shape\[3\] \[4\]",
      lambda v, m: RAW.ResourceApplyMomentum(var=v, accum=m, lr=.1, grad=hidden(ONES), momentum=.1))
fails("index out of range", "INVALID_ARGUMENT", "Index 5 at offset 0 in indices is out of range",
      lambda v, m: RAW.ResourceSparseApplyAdagrad(var=v, accum=v, lr=.1, grad=hidden(ONES[:1]), indices=hidden([5])))
fails("indices and gradient", "INVALID_ARGUMENT", "grad must be the same size as indices in the first dimension.",
      lambda v, m: RAW.ResourceSparseApplyAdagrad(var=v, accum=v, lr=.1, grad=hidden(ONES[:2]), indices=hidden([1])))
fails("negative rate", "INVALID_ARGUMENT", "lr is not a positive scalar",
      lambda v, m: RAW.ResourceApplyProximalAdagrad(var=v, accum=v, lr=-1., l1=0., l2=0., grad=ONES))
