"""Tiny files in the published formats, written by hand for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "talk-1",
        "conversation": {
            "speaker_a": "Ana",
            "speaker_b": "Ben",
            "session_2_date_time": "12:05 am on 3 March, 2024",
            "session_2": [
                {
                    "speaker": "Ben",
                    "dia_id": "D2:1",
                    "text": "My sister was here in Porto.",
                    "blip_caption": "a tram",
                },
                {"speaker": "Ana", "dia_id": "D2:2", "text": "How was the weather there?"},
            ],
            "session_1_date_time": "4:30 pm on 1 March, 2024",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a grey parrot called Pixel."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Lovely! I am learning the cello."},
            ],
            "session_3_date_time": "1:00 pm on 9 March, 2024",
        },
        "qa": [
            {"question": "What is the parrot called?", "answer": "Pixel", "evidence": ["D1:1"], "category": 4},
            {"question": "Who plays and travels?", "answer": "Ben", "evidence": ["D:1:2; D2:1"], "category": 1},
            {"question": "What is the fish called?", "adversarial_answer": "x", "evidence": [], "category": 5},
        ],
    }
]

PREFEVAL: dict[str, Any] = {
    "pairs": [
        {"topic": "food", "preference": "I never eat peanuts.", "question": "Which snack shall I bring?"},
        {"topic": "pets", "preference": "I prefer cats to dogs.", "question": "Which pets, cats or dogs, fit me?"},
    ],
    "distractors": [
        {
            "conversation_id": "c1",
            "conversation": [
                {"role": "user", "content": "How do I sort a list?"},
                {"role": "assistant", "content": "Call sorted on it."},
                {"role": "user", "content": "  "},
            ],
        }
    ],
}

BEAM: dict[str, Any] = {
    "chat": [
        {
            "batch_number": 1,
            "turns": [
                [
                    {"role": "user", "id": 0, "content": "Hello there. ->-> 1,1"},
                    {"role": "assistant", "id": 1, "time_anchor": "March-15-2024", "content": "Good morning."},
                ],
                [{"role": "user", "id": 2, "content": "The deadline of my report is in May."}],
            ],
        },
        {
            "batch_number": 2,
            "turns": [
                [
                    {
                        "role": "user",
                        "id": 3,
                        "time_anchor": "April-05-2024",
                        "content": "The report is due in June now.",
                    },
                    {"role": "assistant", "id": 4, "content": "Noted, the deadline moved."},
                ]
            ],
        },
    ],
    "questions": {
        "knowledge_update": [
            {"question": "When is the deadline of the report?", "source_chat_ids": {"new": [3], "old": [2, True]}}
        ],
        "summarization": [{"question": "Sum up the report.", "source_chat_ids": [4, [2, 2]]}],
        "abstention": [{"question": "Who is my boss?"}],
    },
}

LONGMEMEVAL: list[dict[str, Any]] = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which instrument did I buy?",
        "answer": "an oboe",
        "question_date": "2023/05/30 (Tue) 10:00",
        "haystack_session_ids": ["s1", "answer_s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 12:00"],
        "haystack_sessions": [
            [{"role": "user", "content": "It rains a lot."}, {"role": "assistant", "content": "Take an umbrella."}],
            [{"role": "user", "content": "I bought an oboe, my first instrument.", "has_answer": True}],
        ],
        "answer_session_ids": ["answer_s2"],
    }
]
LONGMEMEVAL.append({**LONGMEMEVAL[0], "question_id": "q2_abs"})


def write(folder: Path, name: str, content: Any) -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
