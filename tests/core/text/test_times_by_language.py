"""What time expressions in German, Spanish, French, Arabic and Hindi mean, seen from Wednesday 7 June 2023."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from memos.core.text.times import time_expressions

WEDNESDAY = datetime(2023, 6, 7, 14, tzinfo=UTC)


def days(text: str) -> list[tuple[str, str]]:
    return [
        (f"{found.valid_from:%Y-%m-%d}", f"{found.valid_to:%Y-%m-%d}")
        for found in time_expressions(text, WEDNESDAY, ZoneInfo("UTC"))
    ]


GERMAN = [
    ("Gestern habe ich Ana getroffen.", "2023-06-06", "2023-06-07"),
    ("Was habe ich vorgestern gegessen?", "2023-06-05", "2023-06-06"),
    ("Wir sehen uns morgen am Bahnhof.", "2023-06-08", "2023-06-09"),
    ("Morgen fahre ich nach Bonn.", "2023-06-08", "2023-06-09"),
    ("Heute Morgen war ich beim Arzt.", "2023-06-07", "2023-06-08"),
    ("Übermorgen ist die Prüfung.", "2023-06-09", "2023-06-10"),
    ("Letzte Woche war ich krank.", "2023-05-29", "2023-06-05"),
    ("Wir waren letzten Freitag im Kino.", "2023-06-02", "2023-06-03"),
    ("Nächsten Monat ziehe ich um.", "2023-07-01", "2023-08-01"),
    ("Am vergangenen Wochenende waren wir am See.", "2023-06-03", "2023-06-05"),
    ("Vor zwei Wochen habe ich gekündigt.", "2023-05-22", "2023-05-29"),
    ("Das Paket kommt in drei Tagen.", "2023-06-10", "2023-06-11"),
    ("Ich bin am 3. März 2021 geboren.", "2021-03-03", "2021-03-04"),
    ("Ich habe am 3. Mai angefangen.", "2023-05-03", "2023-05-04"),
    ("Der Termin ist am 12. August.", "2023-08-12", "2023-08-13"),
    ("Die Frist endet am 30.06.2023.", "2023-06-30", "2023-07-01"),
    ("Was ist im März passiert?", "2023-03-01", "2023-04-01"),
    ("Im Oktober heiraten wir.", "2023-10-01", "2023-11-01"),
    ("Im Jahr 2019 habe ich in Graz gewohnt.", "2019-01-01", "2020-01-01"),
    ("Der Aufzug ist seit November kaputt.", "2022-11-01", "2022-12-01"),
    ("Ich habe bis Oktober Urlaub beantragt.", "2023-10-01", "2023-11-01"),
    ("Am Montag habe ich Tom gesehen.", "2023-06-05", "2023-06-06"),
    ("Am Montag fliege ich nach Rom.", "2023-06-12", "2023-06-13"),
]
SPANISH = [
    ("Ayer conocí a Ana en el parque.", "2023-06-06", "2023-06-07"),
    ("Anteayer fui al médico con mi madre.", "2023-06-05", "2023-06-06"),
    ("Mañana viajo a Sevilla con mi hermano.", "2023-06-08", "2023-06-09"),
    ("Pasado mañana tengo el examen.", "2023-06-09", "2023-06-10"),
    ("¿Qué comí la semana pasada?", "2023-05-29", "2023-06-05"),
    ("El mes que viene me mudo a Cádiz.", "2023-07-01", "2023-08-01"),
    ("El viernes pasado cenamos en casa de Luis.", "2023-06-02", "2023-06-03"),
    ("El próximo viernes tengo una cita.", "2023-06-09", "2023-06-10"),
    ("Hace dos semanas dejé mi trabajo.", "2023-05-22", "2023-05-29"),
    ("El paquete llega dentro de tres días.", "2023-06-10", "2023-06-11"),
    ("Nací el 3 de marzo de 1991 en Lugo.", "1991-03-03", "1991-03-04"),
    ("El 3 de mayo empecé en la empresa.", "2023-05-03", "2023-05-04"),
    ("Con quién comí el 3 de mayo?", "2023-05-03", "2023-05-04"),
    ("La boda es el 12 de agosto en la playa.", "2023-08-12", "2023-08-13"),
    ("El plazo es el 30/06/2023, no lo olvides.", "2023-06-30", "2023-07-01"),
    ("¿Qué hice en marzo?", "2023-03-01", "2023-04-01"),
    ("En octubre me caso con Marta.", "2023-10-01", "2023-11-01"),
    ("En 2019 vivía en Graz con mi tía.", "2019-01-01", "2020-01-01"),
    ("Está roto desde noviembre en mi casa.", "2022-11-01", "2022-12-01"),
    ("El lunes vi a Tomás en el mercado.", "2023-06-05", "2023-06-06"),
    ("El lunes viajo a Roma con mi jefe.", "2023-06-12", "2023-06-13"),
]
FRENCH = [
    ("Hier j'ai rencontré Ana au parc.", "2023-06-06", "2023-06-07"),
    ("Avant-hier je suis allé chez le médecin.", "2023-06-05", "2023-06-06"),
    ("Demain je pars à Lyon avec mon frère.", "2023-06-08", "2023-06-09"),
    ("Après-demain j'ai mon examen.", "2023-06-09", "2023-06-10"),
    ("Qu'est-ce que j'ai mangé la semaine dernière ?", "2023-05-29", "2023-06-05"),
    ("Le mois prochain je déménage à Nantes.", "2023-07-01", "2023-08-01"),
    ("Vendredi dernier nous avons dîné chez Luc.", "2023-06-02", "2023-06-03"),
    ("Ce week-end nous allons au lac.", "2023-06-10", "2023-06-12"),
    ("Il y a deux semaines j'ai quitté mon travail.", "2023-05-22", "2023-05-29"),
    ("Le colis arrive dans trois jours chez moi.", "2023-06-10", "2023-06-11"),
    ("Je suis né le 3 mars 1991 à Lille.", "1991-03-03", "1991-03-04"),
    ("Le mariage est le 12 août sur la plage.", "2023-08-12", "2023-08-13"),
    ("J'ai commencé le 3 mai dans cette entreprise.", "2023-05-03", "2023-05-04"),
    ("Qu'est-ce que j'ai fait en mars ?", "2023-03-01", "2023-04-01"),
    ("En octobre je me marie avec Marthe.", "2023-10-01", "2023-11-01"),
    ("En 2019 j'habitais à Graz chez ma tante.", "2019-01-01", "2020-01-01"),
    ("Il est en panne depuis novembre chez moi.", "2022-11-01", "2022-12-01"),
    ("J'ai vu Thomas lundi au marché.", "2023-06-05", "2023-06-06"),
    ("Je pars à Rome lundi avec mon chef.", "2023-06-12", "2023-06-13"),
]
ARABIC = [
    ("قابلت آنا أمس في الحديقة.", "2023-06-06", "2023-06-07"),
    ("ذهبت إلى الطبيب أول أمس.", "2023-06-05", "2023-06-06"),
    ("سأسافر غدًا إلى الرباط.", "2023-06-08", "2023-06-09"),
    ("ماذا أكلت الأسبوع الماضي؟", "2023-05-29", "2023-06-05"),
    ("سأنتقل الشهر القادم إلى طنجة.", "2023-07-01", "2023-08-01"),
    ("تركت عملي قبل أسبوعين.", "2023-05-22", "2023-05-29"),
    ("بدأت العمل قبل ثلاثة أيام.", "2023-06-04", "2023-06-05"),
    ("ولدت في 3 مارس 1991 في فاس.", "1991-03-03", "1991-03-04"),
    ("ماذا حدث في شهر مارس؟", "2023-03-01", "2023-04-01"),
    ("رأيت سامي يوم الاثنين.", "2023-06-05", "2023-06-06"),
    ("سأرى سامي يوم الاثنين.", "2023-06-12", "2023-06-13"),
    ("عشت هناك في عام 2019.", "2019-01-01", "2020-01-01"),
]
HINDI = [
    ("मैं कल आना से मिला था।", "2023-06-06", "2023-06-07"),
    ("मैं कल दिल्ली जाऊँगा।", "2023-06-08", "2023-06-09"),
    ("परसों मेरी परीक्षा होगी।", "2023-06-09", "2023-06-10"),
    ("मैंने पिछले हफ्ते क्या खाया?", "2023-05-29", "2023-06-05"),
    ("अगले महीने मैं पुणे जाऊँगी।", "2023-07-01", "2023-08-01"),
    ("मैंने दो हफ्ते पहले नौकरी छोड़ी।", "2023-05-22", "2023-05-29"),
    ("मेरा जन्म 3 मार्च 1991 को हुआ था।", "1991-03-03", "1991-03-04"),
    ("मार्च में क्या हुआ था?", "2023-03-01", "2023-04-01"),
    ("मैं सोमवार को राम से मिला।", "2023-06-05", "2023-06-06"),
    ("मैं सोमवार को रोम जाऊँगा।", "2023-06-12", "2023-06-13"),
    ("मैं 2019 में ग्राज़ में रहता था।", "2019-01-01", "2020-01-01"),
]


@pytest.mark.parametrize(("text", "first", "after"), GERMAN + SPANISH + FRENCH + ARABIC + HINDI)
def test_an_expression_is_resolved(text: str, first: str, after: str) -> None:
    assert days(text) == [(first, after)]


@pytest.mark.parametrize(
    "text",
    [
        "Guten Morgen, wie geht es dir?",
        "Ich jogge jeden Morgen im Park.",
        "Die Version 1.2.3 ist auf dem Server 10.1.20.30.",
        "Sein Geburtstag ist am 31. Februar.",
        "Trabajo por la mañana en una tienda.",
        "Voy al gimnasio cada mañana con mi hermano.",
        "Je vais au marché le lundi avec ma mère.",
        "حدث ذلك في اليوم التالي.",
        "Er wohnt im Haus Nummer 12 in der Maistraße.",
    ],
)
def test_what_looks_like_a_time_is_none(text: str) -> None:
    assert days(text) == []


def test_two_times_in_one_sentence_are_two() -> None:
    assert days("Ich war letzte Woche in Bonn und fahre am 3. Juli 2023 nach Wien.") == [
        ("2023-05-29", "2023-06-05"),
        ("2023-07-03", "2023-07-04"),
    ]
