/* What a device has no kernel for, and TensorFlow's GPU build has: the CPU's kernels, over the host's memory.
 *
 * Programs say tf.device("/gpu:0") around all of a model, and TensorFlow refuses none of it that its GPU build has any
 * kernel for; those of int32, of which shapes, counters and places are made, compute on the host there as well. So such
 * a node is ours too where a card was asked for and nothing else may be had (device.h: `lent`): its inputs come to the
 * host, the CPU's kernel runs, and what it made goes back if somebody reads it on the card. Nothing else is put on a
 * card for the sake of these: what does not ask, or may be elsewhere, is the CPU's, which has neither copies nor waits.
 *
 * They are made of the CPU's kernels by these lists alone, and no variable is changed by them. An op of a list
 * may have kernels of cards too: these come first, and what is left is the types that they do not have. */
#include <stdlib.h>
#include <string.h>

#include "runtime/kernel_borrow.h"

/* Of plain numbers. */
static const char *const lent[] = {
    /* of sizes and places, and numbers of other types */
    "Abs", "Add", "AddN", "AddV2", "ApproximateEqual", "ArgMax", "ArgMin", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "BroadcastTo", "Bucketize", "Cast", "ClipByValue", "Cumprod", "Cumsum", "CumulativeLogsumexp", "DataFormatDimMap",
    "DataFormatVecPermute", "Div", "DivNoNan", "Empty", "Equal", "EuclideanNorm", "Fill", "FloorDiv", "FloorMod",
    "Gather", "GatherNd", "GatherV2", "Greater", "GreaterEqual", "HistogramFixedWidth", "Invert", "LeftShift", "Less",
    "LessEqual", "LinSpace", "LowerBound", "Max", "Maximum", "Mean", "Min", "Minimum", "Mod", "Mul", "MulNoNan", "Neg",
    "NotEqual", "OneHot", "OnesLike", "PadV2", "PopulationCount", "Pow", "Prod", "Range", "RealDiv", "RightShift",
    "Select", "SelectV2", "Sign", "Square", "SquaredDifference", "Sub", "Sum", "TopK", "TopKV2", "TruncateDiv",
    "TruncateMod", "UpperBound", "Where", "Bincount", "DenseBincount", "Unique", "UniqueV2", "UniqueWithCounts",
    "UniqueWithCountsV2",
    /* that look, and say */
    "CheckNumerics", "CheckNumericsV2", "DebugNanCount", "DebugNumericSummary",
    /* complex numbers */
    "Angle", "Complex", "ComplexAbs", "Conj", "ConjugateTranspose", "FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D",
    "IRFFT", "IRFFT2D", "IRFFT3D", "Imag", "RFFT", "RFFT2D", "RFFT3D", "Real",
    /* functions of a number */
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BesselI0e", "BesselI1e", "Betainc", "Cos", "Cosh",
    "Digamma", "Erfinv", "Exp", "Expm1", "Igamma", "IgammaGradA", "Igammac", "Inv", "InvGrad", "Lgamma", "Log", "Log1p",
    "Ndtri", "NextAfter", "Polygamma", "RandomGammaGrad", "Reciprocal", "ReciprocalGrad", "Rsqrt", "RsqrtGrad",
    "Sigmoid", "SigmoidGrad", "Sin", "Sinh", "Sqrt", "SqrtGrad", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlog1py", "Xlogy",
    "Zeta",
    /* matrices */
    "BandedTriangularSolve", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BatchMatrixBandPart", "BatchMatrixDiag",
    "BatchMatrixDiagPart", "BatchMatrixSetDiag", "Cholesky", "CholeskyGrad", "Cross", "Diag", "DiagPart", "Einsum",
    "LogMatrixDeterminant", "Lu", "MatMul", "MatrixBandPart", "MatrixDeterminant", "MatrixDiag", "MatrixDiagPart",
    "MatrixDiagPartV2", "MatrixDiagPartV3", "MatrixDiagV2", "MatrixDiagV3", "MatrixInverse", "MatrixSetDiag",
    "MatrixSetDiagV2", "MatrixSetDiagV3", "MatrixSolve", "MatrixTriangularSolve", "Qr", "SelfAdjointEigV2", "Svd",
    "TridiagonalMatMul", "TridiagonalSolve",
    /* parts of tensors */
    "BatchToSpace", "BatchToSpaceND", "Bitcast", "DepthToSpace", "DynamicPartition", "DynamicStitch", "InplaceAdd",
    "InplaceSub", "InplaceUpdate", "MirrorPad", "MirrorPadGrad", "ParallelDynamicStitch", "ReverseSequence",
    "ScatterNd", "SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum", "SpaceToBatch",
    "SpaceToBatchND", "SpaceToDepth", "SparseFillEmptyRows", "SparseFillEmptyRowsGrad", "SparseReorder",
    "SparseReshape", "SparseSegmentMean", "SparseSegmentMeanGrad", "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtN", "SparseSegmentSqrtNGrad", "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSum",
    "SparseSegmentSumWithNumSegments", "SparseTensorDenseMatMul", "SparseToDense", "TensorScatterAdd",
    "TensorScatterMax", "TensorScatterMin", "TensorScatterSub", "TensorScatterUpdate", "TensorStridedSliceUpdate",
    "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum",
    /* networks */
    "BatchNormWithGlobalNormalization", "BatchNormWithGlobalNormalizationGrad", "BlockLSTM", "BlockLSTMGrad",
    "BlockLSTMGradV2", "BlockLSTMV2", "Conv3DBackpropFilter", "Conv3DBackpropInput", "Dilation2D",
    "Dilation2DBackpropFilter", "Dilation2DBackpropInput", "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannel",
    "FakeQuantWithMinMaxVarsPerChannelGradient", "GRUBlockCell", "GRUBlockCellGrad", "LRN", "LRNGrad", "LSTMBlockCell",
    "LSTMBlockCellGrad", "MaxPool3DGrad", "MaxPool3DGradGrad", "MaxPoolGradGrad", "MaxPoolGradGradV2",
    "MaxPoolGradGradWithArgmax", "MaxPoolGradWithArgmax", "MaxPoolWithArgmax", "Multinomial",
    "ParameterizedTruncatedNormal", "QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4",
    "QuantizeAndDequantizeV4Grad", "StatelessMultinomial", "StatelessParameterizedTruncatedNormal",
    "StatelessRandomGetAlg", "StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg",
    /* pictures */
    "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "CombinedNonMaxSuppression", "CropAndResize",
    "CropAndResizeGradBoxes", "CropAndResizeGradImage", "ExtractImagePatches", "ExtractVolumePatches", "HSVToRGB",
    "ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "NonMaxSuppressionV2", "NonMaxSuppressionV3",
    "NonMaxSuppressionV4", "RGBToHSV", "ResizeBilinear", "ResizeBilinearGrad", "ResizeNearestNeighbor",
    "ResizeNearestNeighborGrad"};

/* Of values of every type: these compute nothing. */
static const char *const lent_all[] = {"Assert",    "Copy",        "CopyHost",      "DebugIdentity",
                                       "FakeParam", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"};

struct lending {
  struct borrowing head;
  struct device host; /* a CPU of the card's name */
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct lending *l = state;
  const struct device *d = ki->device;
  l->host = (struct device){.type = device_type_host(),
                            .name = d->name,
                            .ordinal = d->ordinal,
                            .incarnation = d->incarnation,
                            .task_devices = d->task_devices,
                            .intra = d->intra,
                            .files = d->files};
  return borrowing_init(ki, &l->host, &l->head);
}

static shoal_status run(struct kernel_ctx *ctx) { return borrowing_run(ctx, ctx->in, ctx->refs_in); }

static bool is_among(const char *const *names, size_t n, const struct op *op) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(names[i], op->name)) return true;
  return false;
}

static bool lend_one(const struct op *op, const struct kernel_def *from, struct kernel_def *out) {
  static const struct kernel_def like = {.device = "GPU",
                                         .state_size = sizeof(struct lending),
                                         .init = init,
                                         .release = borrowing_release,
                                         .run = run,
                                         .host_in = UINT32_MAX,
                                         .host_out = UINT32_MAX};
  bool plain = is_among(lent, sizeof lent / sizeof lent[0], op);
  if (!plain && !is_among(lent_all, sizeof lent_all / sizeof lent_all[0], op)) return false;
  return from->run && borrow_kernel(op, from, plain, &like, out);
}

static struct borrowed_lists made = BORROWED_LISTS(lend_one);

const struct kernel_def *kernel_lent(const struct op *op) { return borrow_all(&made, op); }
