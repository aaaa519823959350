# ruff: noqa: E501
"""Chat templates in the style of those that models come with, and what each writes before an answer."""

from collections.abc import Mapping
from typing import Any, NamedTuple

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<|start_of_role|>", "<|end_of_role|>", "<|start|>", "<|message|>", "<|channel|>", "[INST]", "[/INST]",
)  # fmt: skip


class Case(NamedTuple):
    """A template, and what it writes before the answer to one message."""

    template: str
    header: str
    prefill: str = ""
    arguments: Mapping[str, Any] = {}
    reads: frozenset[str] = frozenset()
    takes_system: bool = True


_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_QWEN3 = """
{%- set ns = namespace(last=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools %}{{- '<|im_start|>system\n# Tools\n' }}{% for t in tools %}{{- t | tojson + '\n' }}{% endfor %}{{- '<|im_end|>\n' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set content = m.content.split('</think>')[-1].lstrip('\n') -%}
{{- '<|im_start|>assistant\n' }}
{%- if loop.index0 > ns.last %}{{- '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif -%}
{{- content + '<|im_end|>\n' }}
{%- else -%}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif -%}{%- endif -%}
"""
_R1 = """
{%- if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif -%}
{{- bos_token }}{%- for m in messages -%}
{%- if m.role == 'assistant' %}{{- '<｜Assistant｜>' + m.content.split('</think>')[-1] + eos_token }}
{%- else %}{{- '<｜User｜>' + m.content }}{% endif -%}{%- endfor -%}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\n' }}{% endif -%}
"""
_DEEPSEEK = """
{%- for m in messages -%}
{%- if m.role == 'assistant' %}{{- '<｜Assistant｜></think>' + m.content + eos_token }}
{%- else %}{{- '<｜User｜>' + m.content }}{% endif -%}{%- endfor -%}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{% if thinking %}{{- '<think>' }}{% else %}{{- '</think>' }}{% endif %}{% endif -%}
"""
_LLAMA3 = """
{{- bos_token }}{%- if not date_string is defined %}
{%- if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}
{%- endif -%}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif -%}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + date_string + '\n\n' + system + '<|eot_id|>' }}
{%- for m in messages %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor -%}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif -%}
"""
_GEMMA = """
{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{{- raise_exception('System role not supported') }}{% endif -%}
{%- for m in messages -%}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif -%}
{%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}
{{- '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{%- endfor -%}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{% endif -%}
"""
_MISTRAL = """
{{- bos_token }}{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif -%}
{%- for m in loop_messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{% endif -%}
{%- if m.role == 'user' -%}
{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\n\n' + m.content + '[/INST]' }}{% else %}{{- '[INST] ' + m.content + '[/INST]' }}{% endif -%}
{%- else %}{{- ' ' + m.content + eos_token }}{% endif -%}{%- endfor -%}
"""
_PHI3 = """
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + '<|im_end|>\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{% else %}{{- eos_token }}{% endif -%}
"""
_GRANITE = """
{%- if messages[0].role != 'system' %}{{- '<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\nToday\\'s Date: ' + strftime_now('%B %d, %Y') + '.' }}
{%- if thinking %}{{- ' Think first.' }}{% endif %}{{- eos_token + '\n' }}{% endif -%}
{%- for m in messages %}{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + eos_token + '\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{% endif -%}
"""
_SMOLLM3 = """
{%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif -%}
{%- if messages[0].role == 'system' and '/no_think' in messages[0].content %}{% set enable_thinking = false %}{% endif -%}
{{- '<|im_start|>system\nToday Date: ' + strftime_now('%d %B %Y') + '\n<|im_end|>\n' }}
{%- for m in messages -%}
{%- if m.role == 'user' %}{{- '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' -%}
{% generation %}{%- if enable_thinking %}{{- '<|im_start|>assistant\n' + m.content.lstrip('\n') + '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>assistant\n<think>\n\n</think>\n' + m.content.lstrip('\n') + '<|im_end|>\n' }}{% endif -%}{% endgeneration %}
{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% if not enable_thinking %}{{- '<think>\n\n</think>\n' }}{% endif %}{% endif -%}
"""
_HARMONY = """
{{- '<|start|>system<|message|>You are ChatGPT.\nCurrent date: ' + strftime_now('%Y-%m-%d') + '\n\nReasoning: ' + (reasoning_effort or 'medium') + '<|im_end|>' }}
{%- for m in messages -%}
{%- if m.role == 'assistant' %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|im_end|>' }}
{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|im_end|>' }}{% endif -%}{%- endfor -%}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif -%}
"""

_IM = "<|im_start|>assistant\n"
_THINKS, _MAY_THINK = frozenset({"tools", "enable_thinking"}), frozenset({"enable_thinking"})
CASES: dict[str, Case] = {
    "chatml": Case(_CHATML, _IM),
    "qwen3": Case(_QWEN3, _IM, reads=_THINKS),
    "qwen3 without thinking": Case(_QWEN3, _IM, "<think>\n\n</think>\n\n", {"enable_thinking": False}, _THINKS),
    "r1 distill": Case(_R1, "<｜Assistant｜>", "<think>\n"),
    "deepseek": Case(_DEEPSEEK, "<｜Assistant｜>", "</think>", reads=frozenset({"thinking"})),
    "deepseek thinking": Case(_DEEPSEEK, "<｜Assistant｜>", "<think>", {"thinking": True}, frozenset({"thinking"})),
    "llama3": Case(_LLAMA3, "<|start_header_id|>assistant<|end_header_id|>\n\n", reads=frozenset({"date_string"})),
    "gemma": Case(_GEMMA, "<start_of_turn>model\n", takes_system=False),
    "mistral": Case(_MISTRAL, "[/INST]", reads=frozenset({"system"})),
    "phi3": Case(_PHI3, "<|assistant|>\n"),
    "granite": Case(_GRANITE, "<|start_of_role|>assistant<|end_of_role|>", reads=frozenset({"thinking"})),
    "smollm3": Case(_SMOLLM3, _IM, reads=_MAY_THINK),
    "smollm3 quick": Case(_SMOLLM3, _IM, "<think>\n\n</think>\n", {"enable_thinking": False}, _MAY_THINK),
    "harmony": Case(_HARMONY, "<|start|>assistant", reads=frozenset({"reasoning_effort"})),
    "opens an answer": Case(_CHATML.replace("assistant\n'", "assistant\nThe answer is'"), _IM, "The answer is"),
}
CLOCKS = ("llama3", "granite", "smollm3", "smollm3 quick", "harmony")
IGNORES = _CHATML.partition("{% if add")[0]
"""ChatML without the header that asks for an answer."""
