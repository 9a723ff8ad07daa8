#!/usr/bin/env python3
"""Reads what `nightshift export rollouts` wrote as trainers do, and compares its two kinds of files.

    python3 scripts/read_rollouts.py [--trainers] DIR

Needs pyarrow and pandas; uses datasets when it is installed. With `--trainers`, also gives every file to the dataset
code of verl and of TRL itself (`pip install verl trl`), on the CPU, without any download: the tokenizer is made from
the rows, the model has one layer with random weights.

Ends with 1 when anything differs or is refused, and with 3 when `--trainers` could not run one of them, for lack of a
package or of files of its layout.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import traceback

SCRATCH = tempfile.TemporaryDirectory(prefix="read-rollouts-")
# Before the import of datasets: nothing is fetched, nothing is written to a cache.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = SCRATCH.name

import pandas
import pyarrow.parquet

try:
    import datasets
except ImportError:
    datasets = None

# What each trainer's check imports; all of it is installed with the first name.
NEEDED = {
    "verl": ["verl", "torch", "torchdata", "tensordict", "omegaconf", "transformers", "tokenizers", "datasets"],
    "trl": ["trl", "torch", "accelerate", "transformers", "tokenizers", "datasets"],
}
ANSWER_ENDS = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def plain(value):
    """Lists and numbers of numpy as those of Python; what is not there as None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def version(package):
    """The installed version."""
    return importlib.metadata.version(package)


def check_file(file, rows, splits):
    """Reads both files of a split with pyarrow, pandas and datasets; gives the names of those that read it."""
    lines = [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
    assert rows == lines, f"{file}: Parquet and JSON differ"
    frame = pandas.read_parquet(file)
    assert [plain(row)["prompt"] for row in frame.to_dict("records")] == [row["prompt"] for row in rows], file
    layout, skill, split = file.parts[-3], file.parts[-2], file.stem
    for row in rows:
        facts = row["extra_info"] if layout == "verl" else row
        assert facts["split"] == split and facts["skill"] == skill, file
        assert row["prompt"][0]["role"] == "system" and row["prompt"][-1]["role"] == "user", file
        assert splits.setdefault(facts["task_name"], split) == split, f"{facts['task_name']} is in two splits"
        if layout == "verl":
            assert row["reward_model"] == {"style": "rule", "ground_truth": facts["task_id"]}, file
        else:
            assert [message["role"] for message in row["completion"]] == ["assistant"], file
    read = ["pyarrow", "pandas"]
    if datasets is not None and rows:
        for kind, path in (("parquet", file), ("json", file.with_suffix(".jsonl"))):
            loaded = datasets.load_dataset(kind, data_files=str(path), split="train")
            assert len(loaded) == len(rows), f"{path}: datasets finds {len(loaded)} rows"
            assert loaded[0]["prompt"] == rows[0]["prompt"], path
        read.append(f"datasets {datasets.__version__}")
    elif datasets is not None:
        read.append("not datasets: it refuses files without rows")
    return read


def conversation(row):
    """Prompt and answer of a row of either layout, as one list of messages."""
    if "completion" in row:
        return row["prompt"] + row["completion"]
    return row["prompt"] + [{"role": "assistant", "content": row["extra_info"]["response"]}]


def own_tokenizer(rows):
    """A tokenizer that is learnt from the rows, with a template of chats."""
    import tokenizers
    import transformers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|pad|>", "<|im_start|>", ANSWER_ENDS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator((message["content"] for row in rows for message in conversation(row)), trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<|pad|>",
        eos_token=ANSWER_ENDS,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def own_model(tokenizer, longest):
    """A model with one layer and random weights: enough to take a step."""
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=longest + 64,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def token_count(tokenizer, messages, **how):
    """The length of a conversation."""
    return len(tokenizer(tokenizer.apply_chat_template(messages, tokenize=False, **how))["input_ids"])


def verl_prompts(file, rows, tokenizer):
    """RLHFDataset on both kinds of files: the filter by length, every item, its collation, the batch of its trainer."""
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl import DataProto
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    longest = max(token_count(tokenizer, row["prompt"], add_generation_prompt=True) for row in rows)
    config = OmegaConf.create(
        {
            "cache_dir": SCRATCH.name,
            "prompt_key": "prompt",
            "max_prompt_length": longest,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": None,
            "truncation": "error",
            "return_raw_chat": True,
        }
    )
    for path in (file, file.with_suffix(".jsonl")):
        loaded = RLHFDataset(data_files=[str(path)], tokenizer=tokenizer, config=config)
        assert len(loaded) == len(rows), f"{path}: {len(loaded)} of {len(rows)} rows are left"
        for place, row in enumerate(rows):
            item = loaded[place]
            assert item["raw_prompt"] == row["prompt"], f"{path}: prompt of row {place}"
            assert item["index"] == row["extra_info"]["index"] == place, f"{path}: index of row {place}"
            for name in ("data_source", "ability", "reward_model", "extra_info"):
                assert item[name] == row[name], f"{path}: {name} of row {place}"
        seen = []
        for batch in StatefulDataLoader(loaded, batch_size=2, collate_fn=collate_fn):
            proto = DataProto.from_single_dict(batch)
            assert len(proto) == len(batch["raw_prompt"])
            seen += [row.non_tensor_batch["reward_model"]["ground_truth"] for row in proto]
        assert seen == [row["reward_model"]["ground_truth"] for row in rows], f"{path}: batches"
    return f"RLHFDataset: {len(rows)} items from each kind of file, batches as DataProto"


def verl_answers(file, rows, tokenizer):
    """MultiTurnSFTDataset. It reads one column with the whole conversation, made here from prompt and response.

    It learns every message of the assistant, those of the prompt too.
    """
    from omegaconf import OmegaConf
    from torch.utils.data import DataLoader
    from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    talks = [conversation(row) for row in rows]
    longest = max(token_count(tokenizer, talk) for talk in talks)
    joined = pathlib.Path(SCRATCH.name) / f"{file.parts[-2]}-{file.stem}-messages.parquet"
    pandas.read_parquet(file, dtype_backend="pyarrow").assign(messages=talks).to_parquet(joined)
    for mode in (DatasetPadMode.RIGHT, DatasetPadMode.NO_PADDING):
        config = OmegaConf.create({"pad_mode": mode, "max_length": longest, "truncation": "error"})
        loaded = MultiTurnSFTDataset([str(joined)], tokenizer, config)
        assert len(loaded) == len(rows), f"{file}: {len(loaded)} of {len(rows)} rows are left"
        for place, talk in enumerate(talks):
            item = loaded[place]
            learnt = tokenizer.decode(item["input_ids"][item["loss_mask"] == 1])
            answers = [f"{message['content']}{ANSWER_ENDS}\n" for message in talk if message["role"] == "assistant"]
            assert learnt == "".join(answers), f"{file}: answers of row {place}"
        batches = DataLoader(loaded, batch_size=2, collate_fn=SFTTensorCollator(mode))
        assert sum(batch["input_ids"].size(0) for batch in batches) == len(rows), f"{file}: batches"
    return f"MultiTurnSFTDataset, given a column `messages` of prompt and response: {len(rows)} items, padded and not"


def as_trl_loads(kind, path):
    """A file through TRL's own reading of a data set."""
    import trl
    from trl.scripts.utils import DatasetConfig

    sources = [DatasetConfig(path=kind, data_files=str(path), split="train")]
    return trl.get_dataset(trl.DatasetMixtureConfig(datasets=sources))["train"]


def trl_answers(file, rows, tokenizer):
    """SFTTrainer on both kinds of files: what it is told to learn is the completion, and it takes a step."""
    import trl

    longest = max(token_count(tokenizer, conversation(row)) for row in rows)
    for kind, path in (("parquet", file), ("json", file.with_suffix(".jsonl"))):
        loaded = as_trl_loads(kind, path)
        assert loaded.to_list() == rows, f"{path}: rows differ"
        for row in loaded:
            assert trl.is_conversational({"prompt": row["prompt"], "completion": row["completion"]}), path
            text = trl.apply_chat_template({key: row[key] for key in ("prompt", "completion")}, tokenizer)
            assert text["completion"] == f"{row['completion'][0]['content']}{ANSWER_ENDS}\n", f"{path}: template"
        trainer = trl.SFTTrainer(
            model=own_model(tokenizer, longest),
            args=trl.SFTConfig(
                output_dir=SCRATCH.name,
                max_length=longest,
                per_device_train_batch_size=2,
                max_steps=1,
                **QUIET,
            ),
            train_dataset=loaded,
            processing_class=tokenizer,
        )
        left = len(trainer.train_dataset)
        assert left == len(rows), f"{path}: {left} of {len(rows)} rows are left"
        for row, item in zip(rows, trainer.train_dataset):
            learnt = tokenizer.decode([token for token in item["labels"] if token != -100])
            assert learnt == f"{row['completion'][0]['content']}{ANSWER_ENDS}\n", f"{path}: answer"
        assert sum(len(batch["input_ids"]) for batch in trainer.get_train_dataloader()) == len(rows), f"{path}: batches"
        assert trainer.train().global_step == 1, path
    return f"SFTTrainer: {len(rows)} rows from each kind of file, completions alone are learnt, one step"


def trl_prompts(file, rows, tokenizer):
    """GRPOTrainer over every row: its reward function gets the columns of the row whose prompt was answered."""
    import trl

    loaded = as_trl_loads("parquet", file)
    facts = [name for name in loaded.column_names if name not in ("prompt", "completion")]
    seen = set()

    def by_length(prompts, completions, **columns):
        for place, prompt in enumerate(prompts):
            row = rows[columns["index"][place]]
            assert prompt == row["prompt"], f"{file}: prompt of row {row['index']}"
            assert all(columns[name][place] == row[name] for name in facts), f"{file}: columns of row {row['index']}"
            seen.add(row["index"])
        return [float(len(completion[0]["content"])) for completion in completions]

    trainer = trl.GRPOTrainer(
        model=own_model(tokenizer, max(token_count(tokenizer, conversation(row)) for row in rows)),
        reward_funcs=by_length,
        args=trl.GRPOConfig(
            output_dir=SCRATCH.name,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
            num_generations=2,
            max_completion_length=4,
            max_steps=len(rows),
            **QUIET,
        ),
        train_dataset=loaded,
        processing_class=tokenizer,
    )
    trainer.train()
    assert seen == set(range(len(rows))), f"{file}: rows {sorted(set(range(len(rows))) - seen)} were never asked"
    return f"GRPOTrainer: {len(rows)} steps, the reward function got all {len(facts)} columns of every row"


# Of every trainer of TRL: on the CPU, nothing written, nothing reported anywhere.
QUIET = {"use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
CHECKS = {"verl": [verl_prompts, verl_answers], "trl": [trl_prompts, trl_answers]}


def missing(trainer):
    """What cannot be imported of what a trainer's check needs, each with the reason."""
    found = []
    for name in NEEDED[trainer]:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(name)
        except Exception as error:  # Packages that do not fit together raise all kinds of errors.
            found.append(f"{name} ({type(error).__name__}: {error})")
    return found


def check_trainers(folder, files):
    """Gives every file with rows to the trainer of its layout; counts what failed, names who was not run."""
    failed = 0
    absent = []
    for trainer, checks in CHECKS.items():
        without = missing(trainer)
        if without:
            print(f"{trainer}: NOT RUN, cannot import {', '.join(without)}")
            absent.append(trainer)
            continue
        parts = ["torch", "transformers", "datasets", trainer]
        print(f"{trainer}: with {', '.join(f'{part} {version(part)}' for part in parts)}")
        own = {file: rows for file, rows in files.items() if file.parts[-3] == trainer}
        if not own:
            print(f"{trainer}: NOT RUN, there are no files of its layout")
            absent.append(trainer)
        tokenizer = own_tokenizer([row for rows in own.values() for row in rows]) if any(own.values()) else None
        for file, rows in own.items():
            name = file.relative_to(folder).with_suffix("")
            if not rows:
                print(f"{name}: no rows, not given to {trainer}")
                continue
            for check in checks:
                try:
                    # What the packages print is no part of the report.
                    with contextlib.redirect_stdout(sys.stderr):
                        line = check(file, rows, tokenizer)
                except Exception as error:
                    traceback.print_exc()
                    line = f"FAILED in {check.__name__}: {type(error).__name__}: {error}"
                    failed += 1
                print(f"{name}: {line}", flush=True)
    return failed, absent


def main():
    """Reads every file; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", action="store_true", help="also run the dataset code of verl and TRL")
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    args = parser.parse_args()
    splits = {}
    files = {}
    for file in sorted(args.folder.rglob("*.parquet")):
        rows = files[file] = pyarrow.parquet.read_table(file).to_pylist()
        read = check_file(file, rows, splits)
        print(f"{file.relative_to(args.folder)}: {len(rows)} rows ({', '.join(read)})", flush=True)
    total = sum(len(rows) for rows in files.values())
    assert total > 0, "there are no rows"
    print(f"{total} rows, {len(splits)} tasks, none in two splits")
    if datasets is None:
        print("datasets: NOT RUN, it is not installed")
    if not args.trainers:
        return 0
    failed, absent = check_trainers(args.folder, files)
    if absent:
        print(f"not run: {', '.join(absent)}")
    if failed:
        print(f"{failed} checks of trainers failed")
    elif not absent:
        print("every file with rows was read by its trainer")
    return 1 if failed else 3 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
