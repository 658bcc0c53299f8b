// Any text as a chat template: a prompt, or an Error, after bounded work.
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/chat/chat_template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 256u << 20;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const kvscope::ChatTemplate chat(text, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "fuzz");
    const kvscope::ChatMessage messages[] = {
        {"system", "Be brief."}, {"user", " Who? "}, {"assistant", "I."}, {"user", "Why, é?"}};
    if (chat.render(messages).size() > kMostBytes) std::abort();
    kvscope::chat_frame(chat);
  } catch (const kvscope::Error&) {  // the expected outcome
  }
  return 0;
}
