//! The operators that files may have. What draws by itself, loops, or has graphs within is not among them.

use rten::{OpRegistry, op_registry};

/// Makes of a table of operators, by name, what is known and what the runtime is given.
macro_rules! operators {
    ($($operator:ident),*) => {
        const OPERATORS: &[&str] = &[$(stringify!($operator)),*];

        /// Returns the operators, for the runtime. It has a few more, which need a newer C library or which no policy has.
        pub(super) fn registry() -> OpRegistry {
            op_registry!($($operator),*)
        }
    };
}

operators! {
    Abs, Acos, Add, And, ArgMax, ArgMin, Asin, Atan, AveragePool, BatchNormalization, Cast,
    CastLike, Ceil, Clip, Concat, ConstantOfShape, Conv, ConvTranspose, Cos, CumSum, DepthToSpace,
    DequantizeLinear, Div, DynamicQuantizeLinear, Einsum, Elu, Equal, Erf, Exp, Expand, EyeLike,
    Flatten, Floor, GRU, Gather, GatherElements, GatherND, Gelu, Gemm, GlobalAveragePool, Greater,
    GreaterOrEqual, HardSigmoid, HardSwish, Identity, InstanceNormalization, IsInf, IsNaN, LSTM,
    LayerNormalization, LeakyRelu, Less, LessOrEqual, Log, LogSoftmax, LpNormalization, MatMul,
    MatMulInteger, Max, MaxPool, Mean, Min, Mod, Mul, Neg, Not, OneHot, Or, PRelu, Pad, Pow,
    QuantizeLinear, Range, Reciprocal, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceMax,
    ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Relu, Reshape, Round,
    ScatterElements, ScatterND, Shape, Sigmoid, Sign, Sin, Size, Slice, Softmax, Softplus, Softsign,
    Split, Sqrt, Squeeze, Sub, Sum, Tan, Tanh, Tile, TopK, Transpose, Trilu, Unsqueeze, Where, Xor
}

/// Returns whether an operator of ONNX itself, of that name, runs here.
pub(super) fn runs(operator: &str) -> bool {
    // The runtime makes a constant a weight as it loads the file.
    operator == "Constant" || OPERATORS.contains(&operator)
}
