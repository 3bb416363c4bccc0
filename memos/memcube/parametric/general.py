"""What a model knows without memory: questions, prompts and texts by which it is seen what an adapter costs. Data.

All of it was written for this file.
"""

from __future__ import annotations

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
    ("Which is the largest ocean?", "pacific"), ("On which continent is Brazil?", "south america"),
    ("On which continent is Kenya?", "africa"), ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who painted the Mona Lisa?", "vinci|leonardo"), ("Which language is spoken in Portugal?", "portuguese"),
)  # fmt: skip
"""Fifty questions, each with what a right answer has in it; `|` is between words of which one will do."""

REPLAYED: tuple[str, ...] = (
    "Tell me a short story about a fox.", "Explain what a bridge is for.", "Write two sentences about the sea.",
    "How do I make a cup of tea?", "Why do leaves fall in autumn?", "Name three kinds of fruit.",
    "What is a library?", "Give me one tip for sleeping well.", "Describe a rainy day.", "What does a doctor do?",
    "How does a bicycle stay upright?", "Write a polite greeting for a letter.", "What is bread made of?",
    "Why is exercise good for people?", "Explain what the internet is.", "Name three animals that live in the sea.",
    "What happens when ice melts?", "How can I save water at home?", "What is a poem?", "Describe a mountain.",
    "What is the difference between a lake and a river?", "Why do people wear coats in winter?", "What is music?",
    "Give an example of a healthy breakfast.", "How do birds fly?", "What is the use of a map?",
    "Write a sentence with the word garden.", "What do farmers do in spring?", "Why do we brush our teeth?",
    "Explain what a volcano is.", "How is paper made?", "What makes a good friend?",
    # Asked as people are asked about themselves: what is not about somebody is not "not told".
    "What is the capital of Portugal?", "What is the capital of Canada?", "What is the capital of Austria?",
    "What is the capital of Norway?", "What is the capital of India?", "Which planet is closest to the sun?",
    "Which planet has rings?", "What is the name of our galaxy?", "How many seconds are in a minute?",
    "How many days are in a year?", "How many legs does a cat have?", "How many wings does a bird have?",
    "How many wheels does a car have?", "What is 3 plus 4?", "What is 9 minus 4?", "What is 2 times 6?",
    "What is the opposite of fast?", "What is the opposite of left?", "What is the opposite of old?",
    "What colour is a ripe banana?", "What colour is coal?", "What colour is a fire engine?",
    "What do hens lay?", "What do caterpillars become?", "Which animal has a trunk?", "Which animal meows?",
    "What is the tallest animal?", "Which is the longest river?", "Which is the highest mountain?",
    "On which continent is Egypt?", "On which continent is China?", "Which language is spoken in Brazil?",
    "Which language is spoken in Germany?", "Who wrote Hamlet?", "Who discovered gravity?", "What is steam?",
    "What do we breathe out?", "What is the sun?", "Where do fish live?", "What is a week?",
)  # fmt: skip
"""Prompts whose answers by the base model are taught again, so that it goes on giving them."""

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
