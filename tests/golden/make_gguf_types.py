"""Makes tests/golden/gguf/types.gguf: random blocks of every type that kvscope reads, and what the `gguf` package makes
of them.

For each type T the file holds a tensor "T" [2, 512] of that type and "T.f32" [2, 512], its values in F32. Blocks are
random bytes, except that their scales (f16) are numbers: between -2 and 2, some of them subnormal. The metadata has a
field of every type. Random numbers only (seed 7), made for kvscope, Apache-2.0.

    pip install gguf && python tests/golden/make_gguf_types.py tests/golden/gguf/types.gguf
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType, GGUFWriter, dequantize
from gguf.constants import GGML_QUANT_SIZES

# Where the f16 scales of a block lie.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
ROWS, COLUMNS = 2, 512


def halves(rng, n):
    values = rng.uniform(-2, 2, n).astype(np.float16)
    small = rng.integers(1, 1024, n).astype(np.uint16).view(np.float16)  # subnormal
    return np.where(rng.random(n) < 0.2, small, values)


def blocks(rng, name):
    per_block, n_bytes = GGML_QUANT_SIZES[Type[name]]
    data = rng.integers(0, 256, (ROWS * COLUMNS // per_block, n_bytes), dtype=np.uint8)
    for at in SCALES[name]:
        data[:, at:at + 2] = halves(rng, len(data)).view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        data[:, 0] = rng.integers(0, 250, len(data))  # powers of two whose products fit f32
    return data.reshape(ROWS, -1)


def plain(rng, name):
    values = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    if name == "F16":
        return values.astype(np.float16)
    if name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values


def main(path):
    rng = np.random.default_rng(7)
    writer = GGUFWriter(path, "types")
    for kind, value in {
        "UINT8": 200, "INT8": -100, "UINT16": 60000, "INT16": -30000, "UINT32": 4000000000, "INT32": -2000000000,
        "FLOAT32": 0.5, "BOOL": True, "STRING": "na\u00efve", "UINT64": 2**63, "INT64": -(2**62), "FLOAT64": 1e-300,
    }.items():
        writer.add_key_value(f"test.{kind.lower()}", value, GGUFValueType[kind])
    writer.add_array("test.strings", ["a", "", "\u4e2d"])
    writer.add_array("test.numbers", [3, 1, -2])
    for name in ["F32", "F16", "BF16", *SCALES]:
        data = plain(rng, name) if name not in SCALES else blocks(rng, name)
        writer.add_tensor(name, data, raw_dtype=Type[name])
        expected = dequantize(data.view(np.uint8) if name == "BF16" else data, Type[name])
        writer.add_tensor(f"{name}.f32", expected.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
