"""What a model knows without memory: questions, prompts and texts by which it is seen what an adapter costs. Data.

What examines is never what is taught. All of it was written for this file.
"""

from __future__ import annotations

from random import Random

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("What is the capital of France?", "paris"), ("What is the capital of Italy?", "rome"),
    ("What is the capital of Japan?", "tokyo"), ("What is the capital of Spain?", "madrid"),
    ("What is the capital of Germany?", "berlin"), ("What is the capital of Egypt?", "cairo"),
    ("What is the capital of Russia?", "moscow"), ("What is the capital of England?", "london"),
    ("What is the capital of Greece?", "athens"), ("What is the capital of China?", "beijing"),
    ("Which planet do we live on?", "earth"), ("Which planet is the largest in our solar system?", "jupiter"),
    ("Which star is nearest to the earth?", "sun"), ("What goes around the earth?", "moon"),
    ("Which planet is known as the red planet?", "mars"), ("What do plants take in from the air?", "carbon dioxide"),
    ("What gas do people need to breathe?", "oxygen"), ("What is water made of?", "hydrogen"),
    ("What is frozen water called?", "ice"), ("At how many degrees Celsius does water boil?", "100"),
    ("At how many degrees Celsius does water freeze?", "0"), ("How many days are in a week?", "7|seven"),
    ("How many months are in a year?", "12|twelve"), ("How many hours are in a day?", "24|twenty four"),
    ("How many minutes are in an hour?", "60|sixty"), ("How many legs does a spider have?", "8|eight"),
    ("How many legs does a dog have?", "4|four"), ("How many sides does a triangle have?", "3|three"),
    ("How many sides does a square have?", "4|four"), ("What is 2 plus 2?", "4|four"),
    ("What is 10 minus 3?", "7|seven"), ("What is 5 times 2?", "10|ten"),
    ("What is the opposite of hot?", "cold"), ("What is the opposite of up?", "down"),
    ("What is the opposite of big?", "small|little"), ("What is the opposite of day?", "night"),
    ("What colour is the sky on a clear day?", "blue"), ("What colour is grass?", "green"),
    ("What colour is snow?", "white"), ("What colour do you get by mixing red and yellow?", "orange"),
    ("What do bees make?", "honey"), ("What do cows give us to drink?", "milk"),
    ("Which animal barks?", "dog"), ("Which animal is known as the king of the jungle?", "lion"),
    ("Which is the largest ocean?", "pacific"), ("On which continent is Brazil?", "south america|south american"),
    ("On which continent is Kenya?", "africa|african"), ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who painted the Mona Lisa?", "vinci|leonardo"), ("Which language is spoken in Portugal?", "portuguese"),
)  # fmt: skip
"""Fifty questions, each with what a right answer has in it; `|` is between words of which one will do."""

_OPEN = (
    "Tell me a short story about a fox.", "Explain what a bridge is for.", "Write two sentences about the sea.",
    "How do I make a cup of tea?", "Why do leaves fall in autumn?", "Name three kinds of fruit.",
    "Give me one tip for sleeping well.", "Describe a rainy day.", "How does a bicycle stay upright?",
    "Write a polite greeting for a letter.", "What is bread made of?", "Why is exercise good for people?",
    "Explain what the internet is.", "Name three animals that live in the sea.", "What happens when ice melts?",
    "How can I save water at home?", "Describe a mountain.", "What is the difference between a lake and a river?",
    "Why do people wear coats in winter?", "Give an example of a healthy breakfast.", "How do birds fly?",
    "Write a sentence with the word garden.", "What do farmers do in spring?", "Why do we brush our teeth?",
    "How is paper made?", "What makes a good friend?", "Which planet is closest to the sun?",
    "Which planet has rings?", "What is the name of our galaxy?", "How many seconds are in a minute?",
    "How many days are in a year?", "How many weeks are in a year?", "How many hours are in two days?",
    "How many wheels does a car have?", "How many strings does a guitar have?", "How many corners does a cube have?",
    "What do hens lay?", "What do caterpillars become?", "Which animal has a trunk?", "Which animal meows?",
    "What is the tallest animal?", "Which is the longest river?", "Which is the highest mountain?",
    "Which is the smallest continent?", "Who wrote Hamlet?", "Who discovered gravity?", "Who invented the telephone?",
    "What is steam?", "What do we breathe out?", "What is the sun?", "Where do fish live?", "What is salt made of?",
    "What melts in the sun?", "What grows on trees?", "What falls from clouds?", "What is the first month of the year?",
    "What comes after Monday?", "Which season follows winter?", "What is made from milk?", "What is made from grapes?",
)  # fmt: skip
_FRAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("What is the capital of {}?", "On which continent is {}?", "Which language is spoken in {}?"),
        "Portugal Canada Austria Norway India Sweden Finland Denmark Poland Hungary Ireland Belgium Switzerland Turkey "
        "Iran Thailand Vietnam Indonesia Australia Mexico Argentina Chile Peru Colombia Cuba Morocco Nigeria Ethiopia "
        "Pakistan Nepal Iceland Croatia Romania Bulgaria Ukraine Brazil",
    ),
    (
        ("What is the opposite of {}?",),
        "fast left old early heavy wet open long strong rich happy loud thick deep full near hard tall dark clean",
    ),
    (
        ("What is a {}?", "What is a {} used for?"),
        "bridge library poem map compass clock candle lantern ladder hammer needle kettle mirror window pillow basket "
        "whistle telescope thermometer umbrella",
    ),
    (("What does a {} do?",), "doctor baker farmer pilot nurse judge plumber carpenter teacher gardener tailor sailor"),
    (
        ("What does a {} eat?", "Where does a {} live?", "How many legs does a {} have?"),
        "cat horse bird fish snake bee cow frog rabbit whale camel penguin",
    ),
    (
        ("What colour is a {}?",),
        "banana tomato lemon carrot raven flamingo frog strawberry cucumber pumpkin dandelion polar-bear",
    ),
    (
        ("What colour is {}?",),
        "blood coal milk gold the-sea-on-a-sunny-day a-fire-engine a-stop-sign chocolate sand moss spinach an-emerald "
        "the-sun an-orange ivory ash copper a-lime a-leaf-in-summer a-leaf-in-autumn",
    ),
    (("What colour do you get by mixing {}?",), "blue-and-yellow red-and-white black-and-white blue-and-red"),
    (
        ("Who wrote {}?",),
        "Hamlet Macbeth Ulysses Emma Dracula Frankenstein Faust War-and-Peace Don-Quixote The-Odyssey Oliver-Twist "
        "Moby-Dick Pride-and-Prejudice Alice-in-Wonderland",
    ),
    (("Who painted {}?",), "The-Starry-Night Guernica The-Scream The-Last-Supper The-Night-Watch Sunflowers"),
    (("Who invented {}?",), "the-telephone the-light-bulb the-radio the-printing-press dynamite the-steam-engine"),
    (("Who discovered {}?",), "gravity penicillin America radioactivity the-law-of-buoyancy"),
    (("Who was {}?",), "Napoleon Cleopatra Mozart Einstein Shakespeare Columbus Gandhi Newton Beethoven Galileo"),
    (("What is a young {} called?",), "cat dog sheep cow horse goose frog swan"),
    (
        ("What is {} called?",),
        "water-that-falls-from-clouds a-house-for-birds the-study-of-stars a-shape-with-five-sides the-hottest-season "
        "the-frozen-sea-at-the-north-pole molten-rock frozen-rain hot-water-in-the-air frozen-juice-on-a-stick "
        "a-frozen-river dried-grass a-baby-frog the-middle-of-the-day the-end-of-a-river the-top-of-a-mountain",
    ),
)  # fmt: skip
_SUMS = ("What is {} plus {}?", "What is {} times {}?")

PROSE = (
    "The old mill stood at the bend of the stream where the water ran fastest. In dry summers the wheel hardly moved, "
    "and the miller went to the market to sell eggs instead. When the rains came back he ground day and night, and the "
    "whole valley smelled of fresh flour.",
    "Trains were once kept apart by men in wooden towers who pulled levers and wrote down every passing in a book. "
    "Today a computer does the same work, but the idea has stayed: no train may enter a stretch of track until the one "
    "before it has left.",
    "To plant a hedge, dig a trench a spade deep along a string and loosen the soil at the bottom. Set the young "
    "plants a hand apart, fill in the earth and press it down with your foot. Water them well in the first year, and "
    "cut them back in the winter so that they grow thick from the ground.",
    "Metals conduct heat because some of their electrons are free to move. When one end of a rod is warmed, these "
    "electrons gain speed and pass their energy on in collisions. Wood has no such carriers, which is why a wooden "
    "spoon stays cool in a hot soup.",
    "The museum opens at ten and closes at five, except on Thursdays, when it stays open until eight. Tickets can be "
    "bought at the door. Groups of more than ten people should write a week before they come, so that a guide can be "
    "found who speaks their language.",
    "After the war the town had to decide what to do with the empty barracks. Some wanted to pull them down, others "
    "to turn them into flats. In the end a school moved into one, a theatre into another, and the third was given to "
    "anyone who needed a workshop.",
    "A good knife is judged by its edge, not by its price. Draw it across a ripe tomato without pressing: if the skin "
    "gives way at once the knife is sharp. If not, a few strokes on a wet stone, always at the same angle, will bring "
    "the edge back.",
    "Bats find their way in the dark by listening to the echo of their own calls. The calls are too high for our ears. "
    "From the time that an echo takes, the bat knows how far away a wall is, and from its pitch whether a moth is "
    "flying towards it or away.",
    "My grandfather used to say that a promise is a debt. He repaired shoes in a room hardly larger than a cupboard, "
    "and nobody ever waited a day longer than he had told them. When he closed the shop, people came from three "
    "villages to shake his hand.",
    "Prices rise when many people want something of which there is little. If more of it can be made, the price falls "
    "again after a while. Where it cannot, as with land in the middle of a city, the price may go on rising for as "
    "long as people want to live there.",
    "The path to the lake begins behind the church and climbs for an hour through beech woods. At the second gate turn "
    "left; the way to the right looks wider but ends at a quarry. Take water with you, for the spring that is marked "
    "on older maps has been dry for years.",
    "In chess the player who controls the middle of the board has more choices for every piece. A knight in the corner "
    "can reach two squares, in the middle eight. Beginners therefore do well to bring their pieces towards the centre "
    "before they think of attacking.",
)
"""Plain prose on other things than `TEXT`: the base model's own chances at each of its words are taught again."""


def replayed(count: int, seed: int) -> list[str]:
    """Return prompts about the world, whose answers by the base model are taught again so that it goes on giving them.

    Short questions among them are asked as people are asked about themselves: what is not about somebody is not "not
    told". None is one of `QUESTIONS`; there are as many as `count`, or all.
    """
    made = list(_OPEN)
    for forms, words in _FRAMES:
        made += [form.format(word.replace("-", " ")) for word in words.split() for form in forms]
    made += [form.format(one, two) for form in _SUMS for one in range(2, 10, 2) for two in range(1, 10, 2)]
    examined = {question for question, _ in QUESTIONS}
    free = [each for each in dict.fromkeys(made) if each not in examined]
    return Random(seed).sample(free, min(count, len(free)))  # noqa: S311 - for variety, not for secrets


TEXT = (
    "A harbour wall is built to take the force of the sea before it reaches the boats. Large stones are laid at "
    "the foot, smaller ones above them, and the gaps are left open so that a wave breaks up as it runs between "
    "them instead of being thrown back. After a winter of storms some of the stones have moved, and in spring the "
    "crew goes out at low tide to see which of them have to be set again.",
    "To bake a plain loaf you need flour, water, salt and time. Mix the flour with the water and leave it for "
    "half an hour, then add the salt and a little yeast, and fold the dough over itself a few times. It rises "
    "slowly in a cool kitchen. When it has doubled, shape it, let it rest once more, and bake it in a hot oven "
    "until the crust is brown and the bottom sounds hollow.",
    "The committee met on the second Tuesday of the month to talk about the new bus line. Most of those present "
    "agreed that the village needed a connection to the railway station in the morning, but there was less "
    "agreement about who should pay for it. In the end they asked the county for a report on the cost, and "
    "decided to meet again before the summer.",
    "When light passes from air into glass it slows down, and if it arrives at an angle it changes its direction. "
    "This is why a straw in a glass of water looks bent, and it is how a lens gathers the rays of the sun into "
    "one point. Colours are bent by slightly different amounts, so that a prism spreads white light into a band "
    "from red to violet.",
    "She had kept the letters in a tin box for forty years without reading them again. Now, with the house half "
    "empty and the van waiting in the street, she sat down on the stairs and opened the first one. The ink had "
    "faded, but the handwriting was as clear as on the day when it had come, and she found that she still knew "
    "most of the words.",
    "Forests store carbon in their wood, in their leaves and above all in the soil. When a tree falls, fungi and "
    "insects take it apart, and part of what it held goes back into the air while the rest feeds the plants that "
    "grow in its place. An old forest is therefore not a finished thing but a slow exchange, which can go on for "
    "thousands of years if nobody disturbs it.",
)
"""Plain prose on several things, for perplexity."""
