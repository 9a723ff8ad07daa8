# --- The operator graph -----------------------------------------------------------------------------------------------

CLASSES = [
    ("matmul", ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "linear", "matmul", "_addmm_activation")),
    ("convolution", ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "_slow_conv2d_forward")),
    ("attention", ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
                   "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
                   "_scaled_dot_product_cudnn_attention")),
    ("softmax", ("_softmax", "_log_softmax", "_safe_softmax")),
    ("normalization", ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
                       "_native_batch_norm_legit_functional", "cudnn_batch_norm", "_batch_norm_with_update",
                       "_batch_norm_no_update", "rms_norm", "_fused_rms_norm", "_native_batch_norm_legit_no_training")),
    ("pooling", ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d", "avg_pool1d",
                 "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "max_pool1d_with_indices")),
    ("reduction", ("sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "argmax", "argmin", "var", "std",
                   "var_mean", "norm", "linalg_vector_norm", "any", "all", "nll_loss_forward", "mse_loss", "l1_loss",
                   "smooth_l1_loss", "huber_loss")),
    ("scan", ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")),
    ("indexing", ("index", "index_select", "gather", "scatter", "embedding", "index_put", "scatter_add", "scatter_reduce",
                  "take", "put", "masked_select", "masked_scatter", "index_add", "index_copy", "index_fill", "index_reduce",
                  "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "embedding_renorm", "_unsafe_index",
                  "_unsafe_index_put", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_index_put_impl",
                  "repeat_interleave", "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter",
                  "narrow_copy", "slice_copy", "select_copy", "diagonal_copy", "as_strided_copy", "unfold_copy",
                  "_pack_padded_sequence", "_nested_from_padded", "_padded_dense_to_jagged_forward", "sparse_mask")),
    ("copy", ("cat", "stack", "clone", "copy_", "_to_copy", "constant_pad_nd", "repeat", "flip", "roll", "fill_", "zero_",
              "reflection_pad2d", "upsample_nearest2d", "tril", "triu", "diag_embed", "pixel_shuffle")),
    ("factory", ("zeros", "ones", "empty", "full", "arange", "eye", "zeros_like", "ones_like", "empty_like", "full_like",
                 "new_zeros", "new_empty", "new_full", "new_ones", "scalar_tensor", "lift_fresh", "empty_strided",
                 "new_empty_strided", "linspace")),
    ("random", ("rand", "randn", "bernoulli", "bernoulli_", "native_dropout", "rand_like", "randn_like", "normal_",
                "uniform_", "randint", "randperm", "multinomial", "normal")),
]
CLASS_OF = {name: class_name for class_name, names in CLASSES for name in names}


def class_of(name):
    """Returns the class of an operator, also of one that works in place."""
    return CLASS_OF.get(name) or CLASS_OF.get(name.rstrip("_"), "elementwise")


def picks_elements(name, class_name, tensors, leaves):
    """Returns whether an operator need not read all of its arguments."""
    if class_name == "attention":
        # By a mask; and the keys behind the last query, by a causal one.
        longer = len(tensors) > 1 and tensors[1].shape[-2:-1] > tensors[0].shape[-2:-1]
        return len(tensors) > 3 or (longer and any(leaf is True for leaf in leaves))
    return class_name == "indexing" or name.rstrip("_") in PARTIAL


# Operators that need not read all of their arguments, in addition to those of the class `indexing`: by masks, by indices and labels, by a
# search, by coordinates, one triangle or the diagonal of a matrix, and crops by negative padding.
PARTIAL = ("where", "masked_fill", "_masked_softmax", "_masked_scale", "max_unpool2d", "max_unpool3d", "nll_loss_forward",
           "nll_loss2d_forward", "_ctc_loss", "_cudnn_ctc_loss", "miopen_ctc_loss", "searchsorted", "bucketize",
           "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback", "cudnn_grid_sampler",
           "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
           "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
           "upsample_bicubic2d", "upsample_trilinear3d", "tril", "triu", "trace", "diag", "linalg_diagonal",
           "linalg_solve_triangular", "triangular_solve", "linalg_cholesky_ex", "cholesky_solve",
           "cholesky_inverse", "_linalg_eigh", "linalg_ldl_factor_ex", "linalg_ldl_solve", "lu_unpack",
           "linalg_householder_product", "ormqr", "im2col", "sparse_sampled_addmm", "constant_pad_nd", "reflection_pad1d",
           "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d")
# Copies that leave all values in place, so that no product becomes cheaper with them.
FAITHFUL = ("clone", "_to_copy")


class Operators(TorchDispatchMode):
    """Records every operator that computes values, without views and factories."""

    def __init__(self):
        super().__init__()
        self.seen, self.random = [], set()
        # By the storage of a tensor: the largest number of its elements that one operator reads. None if an operator picks some of them.
        self.read = {}
        # Whether tensors of known content take part, or views that repeat or leave out elements: then products can be cheaper.
        self.is_regular = True
        # Maps each tensor to the indices in `seen` of the operators that produced its values.
        self.makers = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = func._overloadpacket
        name = packet.__name__
        is_view = getattr(func, "is_view", False) or name in ("detach", "_unsafe_view", "alias", "lift_fresh", "_reshape_alias")
        class_name = class_of(name)
        if class_name == "random" and not (name == "native_dropout" and len(args) > 1 and args[1] == 0.0):
            self.random.add(name)
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        makers = frozenset().union(*(self.makers.get(tensor, ()) for tensor in tensors))
        counts = not is_view and class_name != "factory" and func.namespace != "prim"
        for made in results:
            self.makers[made] = frozenset([len(self.seen)]) if counts else makers
        if is_view and any(made.numel() != tensors[0].numel() for made in results) or class_name == "factory":
            self.is_regular = False
        if counts:
            picks = picks_elements(name, class_name, tensors, leaves)
            for tensor in tensors:
                self.note_read(tensor, picks)
            self.seen.append({
                "name": name, "class": class_name, "flops": flops_of(packet, args, kwargs, result, class_name, picks),
                "bytes": float(sum(nbytes(tensor) for tensor in tensors + results)),
                "inputs": [list(tensor.shape) for tensor in tensors],
                "outputs": [list(tensor.shape) for tensor in results],
                "makers": makers,
            })
        return result

    def note_read(self, tensor, picks=False):
        storage = tensor.untyped_storage()._cdata
        known = self.read.get(storage, 0)
        self.read[storage] = None if picks or known is None else max(known, tensor.numel())

    def moved_bytes(self, given, results):
        """Returns the bytes that every program has to move: of inputs and weights what one operator reads, and all results."""
        for result in results:
            # A result that is a view of an input is copied.
            self.note_read(result)
        read = {}
        for tensor in given:
            storage = tensor.untyped_storage()._cdata
            elements = self.read.get(storage) or 0
            read[storage] = max(read.get(storage, 0), min(elements, tensor.numel()) * least_item(tensor))
        return float(sum(read.values()) + sum(result.numel() * least_item(result) for result in results))

    def flops(self):
        """Returns the operations of a model that is a single operator, or None. Algebra can make several operators cheaper."""
        alone = [operator for operator in self.seen if operator["name"] not in FAITHFUL]
        return alone[0]["flops"] if len(alone) == 1 and self.is_regular else None


def least_item(tensor):
    """Returns the size of an element in bytes, in the form of programs that has the smaller ones."""
    return min(held(tensor), nbytes(tensor)) // max(tensor.numel(), 1)


def flops_of(packet, args, kwargs, result, class_name, picks):
    try:
        from torch.utils.flop_counter import flop_registry

        if packet in flop_registry:
            return float(flop_registry[packet](*args, **kwargs, out_val=result))
    except Exception:
        return None
    # What is not read is not computed with.
    leaves = pytree.tree_leaves(result if picks else (args, kwargs, result))
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    largest = float(max((leaf.numel() for leaf in leaves), default=0))
    if class_name in ("copy", "indexing"):
        return 0.0
    return largest * {"softmax": 5.0, "normalization": 8.0}.get(class_name, 1.0)


def named_operators(seen):
    """Returns at most MAX_OPERATORS operators, each with a unique name and the names of its predecessors.

    In a longer list, operators with the same name and input shapes become one entry with a count.
    """
    import re

    folded, place = [], []
    if len(seen) > MAX_OPERATORS:
        keys = {}
        for operator in seen:
            at = keys.setdefault((operator["name"], str(operator["inputs"])), len(folded))
            place.append(at)
            if at == len(folded):
                folded.append({**operator, "count": 1})
                continue
            entry = folded[at]
            entry["count"] += 1
            entry["makers"] |= operator["makers"]
            for key in ("flops", "bytes"):
                entry[key] = None if entry[key] is None or operator[key] is None else entry[key] + operator[key]
        folded = folded[:MAX_OPERATORS]
    else:
        folded = [{**operator, "count": 1} for operator in seen]
        place = list(range(len(seen)))
    counts, names = {}, []
    for operator in folded:
        base = re.sub(r"[^A-Za-z0-9_]", "_", operator["name"]).strip("_") or "operator"
        base = f"op_{base}" if base[0].isdigit() else base
        counts[base] = counts.get(base, 0) + 1
        names.append((base if counts[base] == 1 else f"{base}_{counts[base]}")[:64])
    named = []
    for number, operator in enumerate(folded):
        after = sorted({place[maker] for maker in operator["makers"]} - {number})
        named.append({
            "name": names[number], "class": operator["class"], "flops": operator["flops"], "bytes": operator["bytes"],
            "inputs": operator["inputs"], "outputs": operator["outputs"], "count": operator["count"],
            "after": [names[maker] for maker in after if maker < len(names)],
        })
    return named


def only_a_copy(inputs, outputs, bytes_):
    """Returns a single copy operator for a model that computes nothing, because a program must still write the outputs."""
    shapes = lambda tensors: [list(tensor.shape) for tensor in tensors]
    return [{"name": "copy", "class": "copy", "flops": 0.0, "bytes": float(bytes_), "inputs": shapes(inputs),
             "outputs": shapes(outputs), "count": 1, "after": []}]
