"""What one made-up person has told of themselves: 180 sentences, mixed so that the first n are of all kinds. Data."""

from __future__ import annotations

from itertools import chain, zip_longest

_OF_MINE = """
phone: a Pixel 9; favourite colour: teal; dentist: Doctor Okafor; car: a Skoda Fabia; sister's name: Clara;
favourite author: Ursula Le Guin; bicycle: a Kona Rove; laptop: a Framework 13; doctor: Doctor Lindqvist;
favourite tea: genmaicha; landlord: Mister Abara; favourite film: Paterson; brother's name: Emil; camera: a Ricoh;
favourite team: Werder Bremen; barber: Luca; favourite restaurant: Casa Nuno; dog's name: Pixie; editor: Helix;
favourite flower: the peony; daughter's name: Ines; guitar: a Yamaha; favourite season: autumn; tent: a Hilleberg;
favourite museum: the Prado; watch: a Casio; keyboard: a Moonlander; favourite painter: Klee; son's name: Jonas;
favourite spice: cardamom; coffee grinder: a Comandante; favourite tree: the larch; accountant: Frau Weiss;
favourite podcast: Radiolab; headphones: a Sennheiser; neighbour: Tomas; favourite city: Trieste; boss: Marta Silva;
favourite game: Carcassonne; favourite poem: Ithaka; printer: a Brother; mother's name: Helena; vet: Doctor Rossi;
favourite drink: ginger beer; backpack: an Osprey; favourite pasta: orecchiette; father's name: Viktor;
favourite pizza: marinara; sewing machine: a Bernina; favourite cake: lemon tart; uncle's name: Anton;
favourite river: the Loire; favourite island: Naxos; gym locker: number 41; favourite album: Blue; plumber: Sanjay;
favourite bird: the wren; favourite soup: minestrone; favourite cheese: Gruyere; favourite fruit: quince;
favourite sport: curling; favourite dance: the tango; favourite holiday: Midsummer; favourite lake: Saimaa;
favourite castle: Eltz; favourite opera: Fidelio; favourite actor: Mads Mikkelsen; favourite singer: Nina Simone;
favourite composer: Ravel; favourite planet: Saturn; favourite dessert: tiramisu; favourite snack: rice crackers;
favourite bread: rye; favourite jam: apricot; favourite board game: Azul; favourite mountain: the Eiger;
favourite beach: Praia da Rocha; favourite hotel: the Lindenhof; favourite airline: Finnair; favourite language: Welsh;
favourite musical: Cabaret; favourite band: Calexico; favourite novel: Middlemarch; favourite comic: Tintin;
favourite cocktail: a Negroni; favourite salad: tabbouleh; favourite vegetable: kohlrabi; favourite herb: lovage;
favourite insect: the dragonfly; favourite dinosaur: Triceratops; favourite stadium: Ullevi; favourite cartoon: Pingu
"""

_LIKES = """
love hiking; like dark chocolate; love jazz; like crosswords; love swimming; like sourdough; love astronomy;
like gardening; love pottery; like cycling; love thunderstorms; like chess; love baking; like birdwatching;
love photography; like calligraphy; hate cilantro; hate karaoke; hate roller coasters; hate mayonnaise;
love origami; like badminton; love opera; like snorkelling; love geocaching; like needlework; love carpentry;
like archery; love fencing; like kayaking; love mushrooms; like rhubarb; love marzipan; like olives; hate traffic;
hate anchovies; hate licorice; hate fireworks
"""

_SAID = """
I live in Lyon. | I work at Nordwind Energy. | I have two cats named Miso and Nori. | I am allergic to peanuts.
I play the cello in a quartet on Tuesdays. | I grew up on a farm near Tampere. | I studied geology in Granada.
I ran the Berlin marathon in 2019. | I am learning Portuguese with a tutor. | I take the tram to the office.
I keep bees on the roof of our house. | I broke my left wrist while skiing. | I drink my coffee without sugar.
I share an office with Priya and Daniel. | I collect old railway maps. | I have been a vegetarian since 2011.
I paint the garden fence every spring. | I write letters with a green fountain pen. | I wake up at six on weekdays.
I once sailed from Kiel to Bornholm. | I sing in the choir of the town hall. | I repair radios in the cellar.
I grow tomatoes on the balcony. | I lost my wallet in Naples. | I teach first aid at the fire station.
I met my husband at a conference in Oslo. | I volunteer at the animal shelter. | I sleep badly when it is windy.
I bought the boat from a retired teacher. | I wear glasses only for driving. | I cook for the neighbours on Sundays.
I saw the northern lights in Abisko. | I proofread novels for a small publisher. | I chair the allotment club.
I swim in the lake until October. | I restore wooden chairs. | I translated a cookbook from Catalan.
I keep a diary of the weather. | I was born during a snowstorm. | I inherited a piano from my aunt.
I fix bicycles for the school. | I walk to the market on Saturdays. | I breed guppies in three tanks.
I led a dig at a Roman villa. | I make candles from old wax. | I avoid driving at night.
I sew costumes for the theatre. | I knit socks for the whole family. | I plan to hike the Cami de Cavalls.
I speak Finnish with my mother. | I dislike crowded trains.
"""


def sentences(count: int | None = None) -> list[str]:
    """Return the first so many, or all."""
    mine = [f"My {thing.strip()} is {value.strip()}." for thing, _, value in _parts(_OF_MINE, ";", ":")]
    likes = [f"I {told.strip()}." for told, _, _ in _parts(_LIKES, ";", "\0")]
    said = [told.strip() for line in _SAID.strip().splitlines() for told in line.split("|")]
    said = [each for line in said for each in (line.replace(". I ", ".\nI ")).splitlines()]
    mixed = [each for each in chain.from_iterable(zip_longest(said, mine, likes)) if each is not None]
    return mixed[:count]


def _parts(text: str, between: str, inside: str) -> list[tuple[str, str, str]]:
    return [each.partition(inside) for each in " ".join(text.split()).split(between) if each.strip()]
