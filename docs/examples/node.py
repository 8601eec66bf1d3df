"""A Lingua node: python3 node.py ws://127.0.0.1:7410/v1/node/ws [TOKEN]"""
import asyncio, json, sys
import websockets

SLOTS, running, unconfirmed, newest_fence = 2, {}, {}, 0
LANGS = ["zh", "en"]
REGISTER = {"type": "register", "node_id": "py-1", "max_concurrent_jobs": SLOTS, "asr_langs": LANGS,
            "semantic_langs": LANGS, "tts_langs": LANGS, "services": {"tts": False}}

async def do_job(send, job, audio):
    try:
        text = job.get("text") or f"{len(audio)} bytes of sound"  # recognise, repair, translate here
        report = {"type": "job_done", "result": {"text_asr": text, "text_translated": text.upper()}}
    except Exception as error:
        report = {"type": "job_fail", "reason": "MODEL_FAILED", "detail": str(error)}
    unconfirmed[key(job)] = {**report, **ref(job)}
    running.pop(key(job), None)
    await send(unconfirmed[key(job)])

def ref(job): return {"job_id": job["job_id"], "attempt_id": job["attempt_id"]}
def key(job): return job["job_id"], job["attempt_id"]

async def serve(ws):
    global newest_fence
    async def send(message): await ws.send(json.dumps(message))
    await send(REGISTER)
    async for frame in ws:
        message = json.loads(frame)
        if message["type"] == "registered":
            for report in list(unconfirmed.values()): await send(report)
        elif message["type"] == "job_assign":
            audio = await ws.recv() if message.get("audio", {}).get("bytes") else b""
            stale, newest_fence = message["fence"] < newest_fence, max(message["fence"], newest_fence)
            if stale or len(running) >= SLOTS:
                reason = "STALE_FENCE" if stale else "BUSY"
                await send({"type": "job_fail", "reason": reason, **ref(message)})
                continue
            await send({"type": "job_ack", **ref(message)})
            running[key(message)] = asyncio.create_task(do_job(send, message, audio))
        elif message["type"] == "job_cancel" and key(message) in running:
            running.pop(key(message)).cancel()
        elif message["type"] == "job_confirmed": unconfirmed.pop(key(message), None)
        elif message["type"] == "error": print(message, file=sys.stderr)

async def main(url, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async for ws in websockets.connect(url, additional_headers=headers):  # connects again and again
        try: await serve(ws)
        except websockets.ConnectionClosed: continue

asyncio.run(main(*sys.argv[1:]))
