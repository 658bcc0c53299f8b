#include "core/model/safetensors_writer.hpp"

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope {

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       bool overwrite) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::size_t end = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype_name},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + tensor.n_bytes}}};
    end += tensor.n_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  std::string size;
  for (int byte = 0; byte < 8; ++byte)
    size += static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * byte)));
  NewFile out(file, overwrite);
  out.write(size);
  out.write(text);
  for (const TensorToWrite& tensor : tensors) {
    std::size_t n = 0;
    tensor.write([&](std::string_view bytes) {
      n += bytes.size();
      out.write(bytes);
    });
    if (n != tensor.n_bytes)
      throw FormatError("tensor {}: expected {} bytes to write, found {}", tensor.name,
                        tensor.n_bytes, n);
  }
  out.publish();
}

}  // namespace kvscope
