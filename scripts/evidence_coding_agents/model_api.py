"""A scripted model for real coding agents: the Messages API of Anthropic and the Responses API of OpenAI, both streamed.

The model answers the prompts of the Planner, the Coder, the judge and the Verifier with the recorded replies of an example. In an
agent session it uses the agent's own tools first, and then takes turns with the tools of Nightshift: build, submit, finish.
"""

import http.server
import json
import re
import threading
from pathlib import Path

REPLIES = Path(__file__).resolve().parent.parent.parent / "examples/row_softmax/replies"
TURNS = ["build", "submit", "finish"]
OUTSIDE = "outside.cpp"
"""A file of the data folder that the agent tries to write."""
FOREIGN = "/etc/os-release"
"""A file of the machine that Claude Code tries to read."""
FAILED = re.compile(r"exited with code [1-9]|exit code:? *[1-9]|\"exit_code\": *[1-9]|denied|not permitted|read-only file system", re.I)
"""What the results of failed commands say in the Responses API, which marks no errors."""
NOTES = []
"""What each request had: its tools, what came of the agent's own tools, the last result of a tool, and the answer."""


def note(**facts):
    NOTES.append(facts)


def reply(name):
    return (REPLIES / f"{name}.md").read_text()


def program():
    return re.search(r"```cpp\n(.*?)```", reply("subtask1.attempt1.write_code"), re.S).group(1)


def decide(asked, tools, results):
    """Returns the next text, or the next call as (name, arguments)."""
    if "You are the Coder of one agent session" not in asked:
        for who, name in [("Planner", "plan"), ("Coder", "subtask1.attempt1.write_code"), ("judge", "subtask1.attempt1.judge")]:
            if f"You are the {who}" in asked:
                return reply(name)
        return reply("subtask1.attempt1.diagnose") if "You are the Verifier" in asked else "Nothing to do."
    run = re.search(r"run_[0-9a-f]{32}", asked).group(0)
    steps = own_tools(asked, tools)
    if len(results) < len(steps):
        return steps[len(results)]
    last = results[-1] if results else ""
    state = re.search(r'"state":\s*"(\w+)"', last)
    if state and state.group(1) == "ended":
        return "The session is over."
    number = re.search(r'"open_turn":\s*(\d+)', last)
    if not (state and state.group(1) == "your_turn" and number):
        return "get_turn", {"run": run, "wait_s": 45}
    number = int(number.group(1))
    arguments = {"run": run, "tool": TURNS[min(number, len(TURNS)) - 1], "open_turn": number, "note": f"turn {number}"}
    arguments |= {"idempotency_key": f"turn{number}", "wait_s": 45} | ({"program": program()} if number == 1 else {})
    return "take_turn", arguments


def own_tools(asked, tools):
    """Returns the calls of the agent's own tools before its first turn. Those that leave the folder of the session are refused."""
    # Claude Code and Codex name the folder in their prompts. A request for the title of a conversation does not.
    folder = re.search(r"(?:working directory: |<cwd>)([^\s<]+)", asked, re.I)
    if folder is None:
        return []
    work, outside = folder.group(1), f"{folder.group(1)}/../../../{OUTSIDE}"
    if "exec_command" in tools:
        return [("exec_command", {"cmd": line}) for line in ("wc -l prompt.md && echo draft > draft.cpp && ls", f"echo x > {outside}")]
    if "Read" in tools:
        draft = {"file_path": f"{work}/draft.cpp", "content": program()}
        leave = [("Write", draft | {"file_path": outside}), ("Read", {"file_path": FOREIGN})]
        return [("Read", {"file_path": f"{work}/prompt.md"}), ("Write", draft), *leave]
    return []


def own_results(asked, tools, results):
    """Returns what came of the calls of the agent's own tools, up to now. `results` are (text, whether it is an error)."""
    steps = own_tools(asked, tools) if "You are the Coder of one agent session" in asked else []
    leaves = [any(name in json.dumps(arguments) for name in (OUTSIDE, FOREIGN)) for _, arguments in steps]
    return [{"leaves": leave, "is_error": is_error, "said": text} for leave, (text, is_error) in zip(leaves, results)]


def plain(content):
    """Returns the text of a content, whatever its form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(plain(part) for part in content)
    return plain(content.get("text") or content.get("content") or content.get("output") or "") if content else ""


def messages(request):
    """Answers a request of the Messages API with its events."""
    names = {tool["name"].removeprefix("mcp__nightshift__"): tool["name"] for tool in request.get("tools", [])}
    blocks = [block for message in request["messages"] for block in message["content"] if isinstance(message["content"], list)]
    marked = [(plain(block.get("content")), block.get("is_error", False)) for block in blocks if block["type"] == "tool_result"]
    results = [text for text, _ in marked]
    asked = plain(request.get("system", [])) + "\n".join(plain(message["content"]) for message in request["messages"])
    said, own = decide(asked, names, results), own_results(asked, names, marked)
    note(api="messages", tools=sorted(names.values()), own=own, last=results[-1:], said=said)
    if isinstance(said, str):
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": said}
    else:
        block = {"type": "tool_use", "id": f"toolu_{len(results):04}", "name": names.get(said[0], said[0]), "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said[1])}
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": []}
    stop = {"stop_reason": "end_turn" if isinstance(said, str) else "tool_use", "stop_sequence": None}
    if not request.get("stream"):
        full = block | ({"text": said} if isinstance(said, str) else {"input": said[1]})
        return message | {"content": [full], "usage": usage} | stop
    return [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]


def responses(request):
    """Answers a request of the Responses API with its events."""
    names = {}
    for tool in request.get("tools", []):
        for inner in tool.get("tools", []) if tool["type"] == "namespace" else [tool]:
            namespace = tool["name"] if tool["type"] == "namespace" else None
            name = inner.get("name", inner["type"])
            names[name.removeprefix("mcp__nightshift__")] = (namespace, name)
    results = [plain(item["output"]) for item in request["input"] if item["type"].endswith("_call_output")]
    asked = plain(request.get("instructions", "")) + "\n".join(plain(item.get("content", [])) for item in request["input"])
    marked = [(text, FAILED.search(text) is not None) for text in results]
    said, own = decide(asked, names, results), own_results(asked, names, marked)
    tools = sorted(f"{namespace or ''}:{name}" for namespace, name in names.values())
    note(api="responses", tools=tools, own=own, last=results[-1:], said=said)
    if isinstance(said, str):
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": said}]}
    else:
        namespace, name = names.get(said[0], (None, said[0]))
        item = {"type": "function_call", "id": f"fc_{len(results)}", "call_id": f"call_{len(results)}", "name": name}
        item |= {"arguments": json.dumps(said[1])} | ({"namespace": namespace} if namespace else {})
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20, "input_tokens_details": None, "output_tokens_details": None}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, value, status=200):
        is_stream = isinstance(value, list)
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in value) if is_stream else json.dumps(value)
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.split("?")[0]
        if path == "/v1/messages/count_tokens":
            self.answer({"input_tokens": 10})
        elif path == "/v1/messages":
            self.answer(messages(json.loads(body)))
        elif path == "/v1/responses":
            self.answer(responses(json.loads(body)))
        else:
            self.refuse()

    def refuse(self):
        note(refused=f"{self.command} {self.path}")
        self.answer({"type": "error", "error": {"type": "not_found_error", "message": "not scripted"}}, 404)

    do_GET = refuse

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve():
    """Serves in a thread of its own. Returns the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
