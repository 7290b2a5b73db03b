#!/usr/bin/env python3
"""The demonstration: a small DSA model continues a long text with its KV cache in host memory, recalls a fact from
5,000 tokens ago, and writes exactly what it writes without offload. Exit code 0 only when all of that holds."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

PROMPT_TOKENS = 6000
COMPLETION_TOKENS = 160
FACT_DISTANCE_TOKENS = 5000
POOL_SIZE = 1024
SEED = 7
FACT_NAME, FACT_VALUE = "Zabero", "731"


def read_jeremiah():
    """The book as the model saw others like it in training: chapter headings, one numbered verse a line."""
    command = ["bible", "-f", "Jer1:1-Jer52:34"]
    output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    lines, chapter = [], None
    for line in output.splitlines():
        match = re.match(r"Jer(\d+):(\d+) (.*)", line)
        if not match:
            continue
        if match.group(1) != chapter:
            lines += ([""] if lines else []) + [f"Jeremiah {match.group(1)}"]
            chapter = match.group(1)
        lines.append(f"{match.group(2)} {' '.join(match.group(3).split())}")
    if not lines:
        sys.exit("demo: the program bible printed no verse of Jeremiah")
    return "\n".join(lines) + "\n"


class Program:
    def __init__(self, path, model, folder):
        self.path, self.model, self.folder = path, model, folder

    def run(self, *arguments):
        """The JSON object that the program prints, and its exit code; progress goes to our own standard error."""
        done = subprocess.run([self.path, *arguments, "--model", self.model, "--json"], stdout=subprocess.PIPE, text=True)
        if not done.stdout:
            sys.exit(f"demo: tidepool {arguments[0]} failed with exit code {done.returncode}")
        return json.loads(done.stdout), done.returncode

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def first_lines(self, text, tokens):
        """The whole lines among the first `tokens` tokens of a text."""
        ids = self.run("tokenize", "--file", self.file("text.txt", text))[0]["ids"][:tokens]
        head = self.run("detokenize", "--ids", self.file("ids.json", json.dumps(ids)))[0]["text"]
        return head[: head.rindex("\n") + 1]

    def generate(self, name, text, *options):
        return self.run("generate", "--prompt-file", self.file(name, text), "--offload", "select",
                        "--pool-size", str(POOL_SIZE), "--seed", str(SEED), *options)


def title(text):
    print(f"\n=== {text} ===\n", flush=True)


def show_text(text):
    for line in text.strip("\n").split("\n"):
        print(textwrap.fill(line, 96, initial_indent="  | ", subsequent_indent="  | ") or "  |")


def mib(count):
    return f"{count / 2**20:.1f} MiB"


def layers_name(layers):
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}-{layers[-1]}"


def show_completion(program, book):
    prompt = program.first_lines(book, PROMPT_TOKENS)
    title("A long text goes on; its KV cache lies in host memory")
    result, code = program.generate("prompt.txt", prompt, "--max-tokens", str(COMPLETION_TOKENS), "--temperature", "0.8",
                                    "--compare-offload")
    last = prompt.rstrip("\n").split("\n")[-1]
    print(f"prompt: the book of Jeremiah, {result['prompt_tokens']:,} tokens, not part of the training text; it ends with")
    show_text(last)
    print("the model goes on (temperature 0.8, fixed seed):")
    show_text(result["text"])
    return result, code


def show_recall(program, book):
    title(f"A fact from {FACT_DISTANCE_TOKENS:,} tokens ago")
    fact = f"And the mark of {FACT_NAME} was {FACT_VALUE}."
    question = f"What was the mark of {FACT_NAME}? The mark of {FACT_NAME} was"
    lines = program.first_lines(book, FACT_DISTANCE_TOKENS).split("\n")
    text = "\n".join(lines[:4] + [fact] + lines[4:]) + question
    result, _ = program.generate("recall.txt", text, "--max-tokens", "4")
    answer = re.match(r"\s*(\d+)", result["text"])
    answer = answer.group(1) if answer else result["text"].strip()
    print(f"line 5 of {len(lines) + 2} says:  {fact}")
    print(f"the last line asks:  {question} ...")
    print(f"the model answers:   {answer}   ({'right' if answer == FACT_VALUE else 'WRONG'})")
    print(f"({result['prompt_tokens']:,} tokens; {result['offload']['fetched_rows']:,} rows were fetched from host memory to answer)")
    return answer == FACT_VALUE


def show_table(result):
    title(f"With and without offload ({result['prompt_tokens']:,} + {result['generated_tokens']} tokens, pool of {POOL_SIZE:,} rows)")
    compare, offload = result["compare"], result["offload"]
    rows = [
        ("", "without", "with offload"),
        ("KV cache on the device", mib(compare["off_device_kv_bytes"]), mib(compare["on_device_kv_bytes"])),
        ("KV rows in host memory", "-", mib(offload["host_kv_bytes"])),
        ("time per token", f"{compare['off_ms_per_token']:.2f} ms", f"{compare['on_ms_per_token']:.2f} ms"),
        ("rows fetched from host memory", "-", f"{offload['fetched_rows']:,}"),
    ]
    for group in offload["groups"]:
        rows.append((f"hit rate, {layers_name(group['layers'])}", "-", f"{100 * group['hit_rate']:.1f} %"))
    rows.append(("tokens and all logits identical", "", "yes" if compare["identical"] else "NO"))
    for name, off, on in rows:
        print(f"  {name:<34} {off:>14} {on:>14}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/cpu/tidepool")
    parser.add_argument("--model", default="models/demo")
    args = parser.parse_args()
    book = read_jeremiah()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(args.program, args.model, folder)
        result, code = show_completion(program, book)
        is_recalled = show_recall(program, book)
        show_table(result)
    return 0 if code == 0 and result["compare"]["identical"] and is_recalled else 1


if __name__ == "__main__":
    sys.exit(main())
